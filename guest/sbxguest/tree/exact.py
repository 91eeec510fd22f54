"""Whether a disk gives every change a time of its own: then stamps of what was changed just now prove something, too.

Most kernels stamp files by a clock that ticks a few hundred times a second. Newer ones look at a better one whenever
somebody has asked for the stamp of before.
"""

from __future__ import annotations

import os
import time

_CHANGES = 16
_TRIES = 5
# No kernel's clock ticks more often than a thousand times a second.
_TICK_NS = 1_000_000


def has_exact_times(fd: int) -> bool:
    """Find out with an open file, which is written to. Slow machines may say no where yes is right; never otherwise.

    Raises:
        OSError: The disk refuses.
    """
    return any(_is_exact(fd) for _ in range(_TRIES))


def _is_exact(fd: int) -> bool:
    began_ns = time.monotonic_ns()
    times = {_changed_at_ns(fd) for _ in range(_CHANGES)}
    is_within_a_tick = time.monotonic_ns() - began_ns < _TICK_NS
    # A clock of microseconds is one on which two cores can meet.
    is_of_nanoseconds = any(at_ns % 1000 for at_ns in times)
    return is_within_a_tick and is_of_nanoseconds and len(times) == _CHANGES


def _changed_at_ns(fd: int) -> int:
    os.pwrite(fd, b"x", 0)
    return os.fstat(fd).st_ctime_ns
