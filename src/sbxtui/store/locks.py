"""Lock files: one process at a time, and none for longer than it lives."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from sbxtui.core.errors import StoreError
from sbxtui.store import failures

# Many may wait for the one that makes, checks or migrates a file.
_OPENER_TIMEOUT_S = 30.0
_POLL_S = 0.01


def try_lock(path: Path) -> BinaryIO | None:
    """Hold a lock file, made if need be, until what is returned is closed; None if somebody else holds it.

    Raises:
        OSError: It cannot be made or locked.
    """
    import fcntl  # missing on Windows, where sbx says so in one line instead of failing to import

    lock = os.fdopen(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600), "r+b", buffering=0)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Whoever held it may have removed it meanwhile: others then lock a new file.
        if os.path.samestat(os.fstat(lock.fileno()), path.stat()):
            return lock
    except (BlockingIOError, FileNotFoundError):
        pass
    except OSError:
        lock.close()
        raise
    lock.close()
    return None


@contextlib.contextmanager
def only_opener(file: Path) -> Iterator[None]:
    """Hold the lock under which a SQLite file is created, migrated and replaced.

    Raises:
        StoreError: It was not free in time, or cannot be made.
    """
    give_up_at = time.monotonic() + _OPENER_TIMEOUT_S
    try:
        while (lock := try_lock(file.with_name(file.name + ".lock"))) is None:
            if time.monotonic() > give_up_at:
                raise StoreError(
                    f"cannot open the store `{file}`: its lock was not free in time",
                    hint="try again; another sbx is opening the same home",
                )
            time.sleep(_POLL_S)
    except OSError as exc:
        raise failures.folder_error(exc, file.parent) from exc
    with lock:
        yield
