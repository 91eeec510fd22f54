"""An event loop in a thread of its own, so that it works where another one runs already, as in a notebook."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """Runs coroutines for callers that have no loop, each until it is done."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="sbxtui", daemon=True)
        self._thread.start()

    @property
    def is_closed(self) -> bool:
        """Whether nothing can be run any more."""
        return self._loop.is_closed()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do it and wait; an interrupted wait cancels the work and waits until it took back what it began.

        A second interrupt ends that wait, too.
        """
        started: Future[asyncio.Task[T]] = Future()
        done: Future[T] = Future()

        async def own() -> None:
            task = asyncio.ensure_future(work)
            started.set_result(task)
            await asyncio.wait((task,))
            _hand_over(task, done)

        running = own()
        try:
            asyncio.run_coroutine_threadsafe(running, self._loop)
            return done.result()
        except BaseException:
            if not done.done():
                self._loop.call_soon_threadsafe(started.result().cancel)
                # How the work ended says less than what interrupted us.
                done.exception()
            raise

    def close(self) -> None:
        """End the thread; closing twice is harmless."""
        if self._loop.is_closed():
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def _hand_over(task: asyncio.Task[T], done: Future[T]) -> None:
    if task.cancelled():
        done.set_exception(asyncio.CancelledError())
    elif (error := task.exception()) is not None:
        done.set_exception(error)
    else:
        done.set_result(task.result())
