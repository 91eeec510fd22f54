"""Requests made one after the other, each begun while the one before is still being answered."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")
# Makes a request; called with what it calls when all of it is sent.
Request = Callable[[Callable[[], None]], Coroutine[Any, Any, T]]


async def one_ahead(requests: Iterable[Request[T]]) -> AsyncGenerator[T, None]:
    """The answers in their order. Two requests are open at most: the second begins when the first is sent. Close it.

    Raises:
        Exception: What a request failed with; the other is cancelled.
    """
    tasks: deque[asyncio.Task[T]] = deque()
    try:
        for request in requests:
            sent = asyncio.Event()
            tasks.append(asyncio.create_task(request(sent.set)))
            await _sent_or_done(sent, tasks[-1])
            if len(tasks) > 1:
                yield await tasks.popleft()
        while tasks:
            yield await tasks.popleft()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _sent_or_done(sent: asyncio.Event, task: asyncio.Task[Any]) -> None:
    waiting = asyncio.create_task(sent.wait())
    try:
        await asyncio.wait((waiting, task), return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
