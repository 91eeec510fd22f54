"""The lock that makes one local cloud a home: held by a process for as long as the home is the one it began in."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

_TIMEOUT_S = 10.0
_RETRY_S = 0.05


@dataclass(frozen=True, slots=True)
class HomeLock:
    """A held lock. The lock file goes with its home, and only the file that is still there stands for it."""

    path: Path
    descriptor: int

    @property
    def is_of_home(self) -> bool:
        """Whether the home is still the one that was locked; where another was made in its place, or none, it is not.

        A folder that cannot be looked into says nothing, so it counts as the same.
        """
        try:
            found = self.path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            return True
        held = os.fstat(self.descriptor)
        return (found.st_dev, found.st_ino) == (held.st_dev, held.st_ino)


@contextlib.contextmanager
def hold_home(path: Path, is_served: Callable[[], bool]) -> Iterator[HomeLock | None]:
    """Hold the home's lock; one that is just ending is waited for.

    Args:
        path: The lock file.
        is_served: Whether somebody serves the home now, so that there is nothing to wait for.

    Yields:
        The lock; None when another process has it.
    """
    deadline = time.monotonic() + _TIMEOUT_S
    while (lock := _try(path)) is None:
        if is_served() or time.monotonic() > deadline:
            yield None
            return
        time.sleep(_RETRY_S)
    try:
        yield lock
    finally:
        os.close(lock.descriptor)


def _try(path: Path) -> HomeLock | None:
    lock = HomeLock(path, os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600))
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(lock.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The home may have gone between the two.
        if lock.is_of_home:
            return lock
    os.close(lock.descriptor)
    return None
