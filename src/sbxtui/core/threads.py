"""Blocking work that may be abandoned.

`asyncio.to_thread` is joined when the event loop closes: a person's Ctrl-C would wait for the answer of a server that
hangs. A daemon thread per call is simply left behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

Result = TypeVar("Result")
Given = ParamSpec("Given")
_MANY = 200


async def run_abandonable(work: Callable[[], Result]) -> Result:
    """Run blocking work in a thread and wait for it. Cancelling gives up the wait; the work ends by its own limits."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Result] = loop.create_future()
    threading.Thread(target=_act, args=(loop, future, work), name="sbx-call", daemon=True).start()
    return await future


def _act(loop: asyncio.AbstractEventLoop, future: asyncio.Future[Result], work: Callable[[], Result]) -> None:
    """In a thread: do the work and hand what came of it to whoever waits."""
    result, error = None, None
    try:
        result = work()
    except Exception as exc:  # noqa: BLE001 - carried over to the task that waits
        error = exc
    # The loop is closed when nobody waits any more.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(_settle, future, result, error)


def _settle(future: asyncio.Future[Result], result: Result | None, error: BaseException | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)  # type: ignore[arg-type]  # without an error there is a result


async def work_beside(many: int, work: Callable[Given, Result], *given: Given.args, **named: Given.kwargs) -> Result:
    """Work on so many things without keeping the event loop from all else; a few take less time than a thread does."""
    if many < _MANY:
        return work(*given, **named)
    return await asyncio.to_thread(work, *given, **named)


class Lane:
    """One thread for blocking calls that come often, one at a time; it ends with the program, whatever it waits for.

    Starting a thread for each would cost more than most of the calls.
    """

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        threading.Thread(target=self._drive, name="sbx-lane", daemon=True).start()

    async def run(self, work: Callable[[], Result]) -> Result:
        """Run one call and wait for it. Cancelling gives up the wait; calls behind it wait for it none the less."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()
        self._calls.put(lambda: _act(loop, future, work))
        return await future

    def _drive(self) -> None:
        while True:
            self._calls.get()()
