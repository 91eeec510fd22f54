"""Reading files that others may be writing."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from typing import Protocol

from blake3 import blake3

from sbxguest.tree.entry import new_digest
from sbxguest.tree.root import READ_FLAGS

_CHUNK_BYTES = 1024 * 1024
_TRIES = 3


class Unstable(Exception):
    """A file that was written while it was read."""


class Taker(Protocol):
    """Takes what is read of a file at once."""

    def take(self, piece: bytes) -> None:
        """The next piece."""

    def end(self, *, is_other: bool) -> None:
        """There are no more. `is_other`: somebody wrote meanwhile, and what was taken is of no use."""


def open_file(name: bytes, folder_fd: int) -> tuple[int, os.stat_result]:
    """An open file and what the disk says of it; pipes and devices are never waited for.

    Raises:
        OSError: It cannot be opened. Unstable: It is no file any more.
    """
    fd = os.open(name, READ_FLAGS, dir_fd=folder_fd)
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode):
        os.close(fd)
        raise Unstable
    return fd, found


def is_unchanged(before: os.stat_result, after: os.stat_result) -> bool:
    """Whether nobody wrote in between, as far as the stamps can tell. Also tells replaced files."""
    return (
        before.st_ctime_ns == after.st_ctime_ns
        and before.st_mtime_ns == after.st_mtime_ns
        and before.st_size == after.st_size
        and before.st_ino == after.st_ino
    )


def read_whole(name: bytes, folder_fd: int, check: Callable[[], None]) -> tuple[bytes, os.stat_result] | None:
    """All of a file and what the disk says of it, in as few calls as there can be: there are very many small files.

    None for one that is longer than 1 MiB, is no file, or was written meanwhile: `digest_of`, which takes the same,
    looks closer.

    Raises:
        OSError: It cannot be read.
    """
    fd = os.open(name, READ_FLAGS, dir_fd=folder_fd)
    try:
        found = os.fstat(fd)
        size_bytes = found.st_size
        if size_bytes > _CHUNK_BYTES or not stat.S_ISREG(found.st_mode):
            return None
        # One byte more than there is: so the same call tells that it ends there.
        content = os.read(fd, size_bytes + 1)
        check()
        return (content, found) if len(content) == size_bytes and is_unchanged(found, os.fstat(fd)) else None
    finally:
        os.close(fd)


def digest_of(
    name: bytes,
    folder_fd: int,
    check: Callable[[], None],
    taker_of: Callable[[os.stat_result], Taker | None] = lambda found: None,
) -> tuple[bytes, os.stat_result, int]:
    """The digest of a file, what the disk says of it, and the moment both are of, in nanoseconds since 1970.

    Args:
        name: In the folder.
        folder_fd: Of the folder.
        check: Called now and then; what it raises ends the reading.
        taker_of: What it gives for a file that is longer than 1 MiB takes all that is read of it.

    Raises:
        OSError: It cannot be read. Unstable: It did not keep still.
    """
    for _ in range(_TRIES):
        at_ns = time.time_ns()
        fd, before = open_file(name, folder_fd)
        try:
            size_bytes = before.st_size
            first = os.read(fd, min(_CHUNK_BYTES, size_bytes))
            digest = new_digest(first)
            check()
            if size_bytes > len(first):
                _read_on(fd, digest, first, before, check, taker_of(before))
            if is_unchanged(before, os.fstat(fd)):
                return digest.digest(), before, at_ns
        finally:
            os.close(fd)
    raise Unstable


def _read_on(
    fd: int,
    digest: blake3,
    first: bytes,
    before: os.stat_result,
    check: Callable[[], None],
    taker: Taker | None,
) -> None:
    """The rest of a file, whose beginning was read."""
    is_other = False
    try:
        if taker is not None:
            taker.take(first)
        left = before.st_size - len(first)
        # No further than it was long: a file that grows as fast as it is read would never end.
        while left > 0 and not is_other and (chunk := os.read(fd, min(_CHUNK_BYTES, left))):
            check()
            digest.update(chunk)
            is_other = not is_unchanged(before, os.fstat(fd))
            if taker is not None and not is_other:
                taker.take(chunk)
            left -= len(chunk)
        is_other = is_other or left > 0
    finally:
        if taker is not None:
            taker.end(is_other=is_other)
