"""Asking again what is safe to ask twice."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from sbxtui.guest.transport import RETRYABLE, Backoff

_MOMENT_S = 2.0

_T = TypeVar("_T")


async def patiently(ask: Callable[[], Awaitable[_T]], limit_s: float = _MOMENT_S) -> _T:
    """Ask again until `limit_s` after the first failure: a guest whose server restarts drops what it was at.

    Raises:
        SbxError: The last failure, or one that asking again cannot change.
    """
    backoff = Backoff(limit_s)
    while True:
        try:
            return await ask()
        except RETRYABLE as exc:
            await backoff.wait(exc)
