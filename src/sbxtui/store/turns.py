"""Taking what others wait for, so that a cancel leaves nothing taken."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TypeVar

from sbxtui.core.errors import SbxError

log = logging.getLogger(__name__)

_T = TypeVar("_T")


async def taken(take: Callable[[], _T], give_back: Callable[[_T], object]) -> _T:
    """Run `take` in a thread. A cancel meanwhile waits for it and gives back what it took: a thread cannot be stopped.

    Args:
        take: Blocking; returns what it took. Its errors are raised here, and mean that nothing was taken.
        give_back: Blocking; undoes it. Called only after a cancel.
    """
    taking = asyncio.ensure_future(asyncio.to_thread(take))
    try:
        return await asyncio.shield(taking)
    except asyncio.CancelledError:
        await asyncio.shield(_undone(taking, give_back))
        raise


async def _undone(taking: asyncio.Future[_T], give_back: Callable[[_T], object]) -> None:
    try:
        await asyncio.to_thread(give_back, await taking)
    except SbxError as exc:
        # Not taken after all, or the store cannot be written: a cancel stays a cancel.
        log.info("nothing was given back after a cancel: %s", exc.message)
