"""Small things about descriptors that init, shim and server share."""

from __future__ import annotations

import os
from collections.abc import Iterable


def close_all(fds: Iterable[int]) -> None:
    """Close every one; a descriptor that is closed already is no error."""
    for fd in fds:
        try:
            os.close(fd)
        except OSError:
            continue


def memfd_of(name: str, data: bytes) -> int:
    """A new anonymous file that holds `data`."""
    fd = os.memfd_create(name, os.MFD_CLOEXEC)
    try:
        written = 0
        while written < len(data):
            written += os.pwrite(fd, data[written : written + 1024 * 1024], written)
    except OSError:
        os.close(fd)
        raise
    return fd


def read_whole(fd: int) -> bytes:
    """All of a file, whatever its offset is, which stays."""
    size_bytes = os.fstat(fd).st_size
    pieces: list[bytes] = []
    at = 0
    while at < size_bytes and (piece := os.pread(fd, size_bytes - at, at)):
        pieces.append(piece)
        at += len(piece)
    return b"".join(pieces)
