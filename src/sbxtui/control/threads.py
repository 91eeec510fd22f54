"""Blocking work that may be abandoned.

`asyncio.to_thread` is joined when the event loop closes: a person's Ctrl-C would wait for the answer of a server that
hangs. A daemon thread per call is simply left behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")


async def run_abandonable(work: Callable[[], Result]) -> Result:
    """Run blocking work in a thread and wait for it. Cancelling gives up the wait; the work ends by its own limits."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Result] = loop.create_future()

    def settle(result: Result | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]  # without an error there is a result

    def act() -> None:
        result, error = None, None
        try:
            result = work()
        except Exception as exc:  # noqa: BLE001 - carried over to the task that waits
            error = exc
        # The loop is closed when nobody waits any more.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=act, name="sbx-control", daemon=True).start()
    return await future
