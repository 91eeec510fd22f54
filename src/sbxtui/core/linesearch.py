"""Searching what a sandbox says for a person's pattern: some pairs of a pattern and a line take years."""

from __future__ import annotations

import re
import signal
import threading
from functools import lru_cache
from types import FrameType

from sbxtui.core.errors import UsageError
from sbxtui.core.text import harmless_line

# Of this process's processor time, so that a busy machine makes no pattern a bad one.
LIMIT_S = 0.5
# Without one of them the time grows with the line only.
_REPEATS = frozenset("*+?{")


class _TookTooLong(Exception):
    """The timer went off."""


def is_found(pattern: re.Pattern[str], text: str) -> bool:
    """Whether the pattern is found in a line; off the main thread, or where such a timer runs already, without a limit.

    Raises:
        UsageError: It did not come to an end within `LIMIT_S`.
    """
    if not _repeats(pattern.pattern) or not _can_be_stopped():
        return pattern.search(text) is not None
    # The search looks for signals by itself now and then; nothing else can stop one.
    before = signal.signal(signal.SIGVTALRM, _stop)
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, LIMIT_S)
        try:
            return pattern.search(text) is not None
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    except _TookTooLong:
        shown = harmless_line(pattern.pattern, limit=60)
        raise UsageError(
            f"`{shown}` came to no end within {LIMIT_S:g} s on a line of {len(text)} characters",
            hint="write it without a repeat inside a repeat, as (a+)+ is one",
        ) from None
    finally:
        signal.signal(signal.SIGVTALRM, before)


@lru_cache(maxsize=16)
def _repeats(pattern: str) -> bool:
    return not _REPEATS.isdisjoint(pattern)


def _can_be_stopped() -> bool:
    is_main = threading.current_thread() is threading.main_thread()
    return is_main and hasattr(signal, "setitimer") and signal.getitimer(signal.ITIMER_VIRTUAL)[0] == 0


def _stop(number: int, frame: FrameType | None) -> None:
    raise _TookTooLong
