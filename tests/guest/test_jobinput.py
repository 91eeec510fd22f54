"""The end of input at a terminal that has no room for it."""

from __future__ import annotations

import asyncio
import os
import tty
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from sbxguest.jobinput import JobInput
from sbxguest.joblog import JobLog
from sbxguest.jobstate import JobState
from sbxguest.terminal import Size, Terminal, open_pair


class Looking:
    """As much of a job as its input needs."""

    id = "j"

    def __init__(self) -> None:
        self._moved = asyncio.Event()

    def wake(self) -> None:
        self._moved.set()
        self._moved = asyncio.Event()

    def changed(self) -> Coroutine[Any, Any, object]:
        return self._moved.wait()


@pytest.fixture
def pair() -> Iterator[tuple[Terminal, int]]:
    """A terminal that hands on each byte as it is typed, and the program's side of it."""
    fds = open_pair(Size(80, 24), uid=None)
    tty.setraw(fds["tty"])
    terminal = Terminal(fds, is_running=False)
    os.set_blocking(fds["tty"], False)
    yield terminal, fds["tty"]
    terminal.close()
    os.close(fds["tty"])


def _drained(side: int) -> bytes:
    data = b""
    try:
        while piece := os.read(side, 65536):
            data += piece
    except BlockingIOError:
        pass
    return data


@pytest.mark.parametrize("is_cut", [True, False])
async def test_an_end_that_found_no_room_is_typed_when_it_is_asked_for_again(
    pair: tuple[Terminal, int], is_cut: bool
) -> None:
    terminal, side = pair
    log = JobLog.create("t", ring_bytes=65536, meta=b"{}")
    fed = JobInput(Looking(), JobState(log.fd), log.fd, has_any=True)
    fed.open_terminal(terminal)
    assert not await fed.write(0, b"x" * (1 << 20), writer="w", stall_s=0.1)
    offset = fed.accepted("w")
    if is_cut:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await fed.end(offset, writer="w")
    else:
        assert not await fed.end(offset, writer="w", stall_s=0.1)
    assert len(_drained(side)) == offset
    async with asyncio.timeout(20):
        for _ in range(2):
            assert await fed.end(offset, writer="w", stall_s=10)
        while not (read := _drained(side)):
            await asyncio.sleep(0.01)
    assert read == b"\x04"
    fed.forget()
    log.close()
