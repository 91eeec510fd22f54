"""One process of a kind per home, by a lock that ends with its process."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager

from sbxtui.home import Home, private_dir


@contextmanager
def single(home: Home, name: str) -> Iterator[bool]:
    """Hold the lock of a kind of process for as long as the block lasts; yields False when another one does."""
    private_dir(home.state_dir)
    with (home.state_dir / f"{name}.lock").open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True
