"""A loop in a thread: its callers wait for their own work and no other."""

from __future__ import annotations

import asyncio
import signal
import threading

import pytest

from sbxtui.core.loopthread import LoopThread


@pytest.fixture
def loop() -> LoopThread:
    return LoopThread()


def test_results_and_errors_come_back(loop: LoopThread) -> None:
    async def fail() -> None:
        raise ZeroDivisionError

    assert loop.run(asyncio.sleep(0, "done")) == "done"
    with pytest.raises(ZeroDivisionError):
        loop.run(fail())
    loop.close()


def test_an_interrupt_takes_back_its_own_work_and_waits_for_no_other(loop: LoopThread) -> None:
    said: list[str] = []
    release = asyncio.Event()

    async def other() -> None:
        await release.wait()

    async def interrupted() -> None:
        try:
            main = threading.main_thread().ident
            assert main is not None
            signal.pthread_kill(main, signal.SIGINT)
            await asyncio.Event().wait()
        finally:
            said.append("taken back")

    waiting = threading.Thread(target=lambda: loop.run(other()))
    waiting.start()
    with pytest.raises(KeyboardInterrupt):
        loop.run(interrupted())
    assert said == ["taken back"]
    loop.run(_set(release))
    waiting.join(30)
    loop.close()


async def _set(event: asyncio.Event) -> None:
    event.set()
