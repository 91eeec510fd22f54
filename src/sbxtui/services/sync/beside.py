"""Work that goes on beside other work, for as long as that takes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager


@asynccontextmanager
async def beside(*work: Coroutine[object, object, None]) -> AsyncIterator[None]:
    """Have work done beside the block; what is not done at the block's end is cancelled.

    Raises:
        Exception: What the work or the block failed with, whichever was first, as it is; either ends the other.
    """
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one) for one in work]
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
