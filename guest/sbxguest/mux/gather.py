"""Sends a message whose parts lie apart: to a plain socket from where they lie, else put together."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence

from sbxguest.mux.frames import COPIED_BYTES, Part

# The kernel takes no more than a thousand at once; so many small ones are put together as fast.
_MOST_PARTS = 64


class Gatherer:
    """Writes to one connection, whose buffer others may write to as well.

    Args:
        transport: Of the connection. A plain one is paused from now on as soon as its socket takes no more: what waits
            in its buffer was copied there, what waits before it was not.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._sock = None if transport.get_extra_info("sslcontext") else transport.get_extra_info("socket")
        if self._sock is not None:
            transport.set_write_buffer_limits(high=0)

    def write(self, parts: Sequence[Part]) -> None:
        """Send all of it, now or later; nobody may change it meanwhile."""
        sock, transport = self._sock, self._transport
        is_large = len(parts) <= _MOST_PARTS and sum(map(len, parts)) >= COPIED_BYTES
        if sock is not None and is_large and not transport.get_write_buffer_size() and not transport.is_closing():
            parts = _unsent(sock.fileno(), parts)
        if parts:
            transport.write(memoryview(parts[0] if len(parts) == 1 else b"".join(parts)))


def _unsent(fd: int, parts: Sequence[Part]) -> Sequence[Part]:
    """Send what a socket takes now; what it did not take."""
    try:
        size = os.writev(fd, parts)
    except OSError:
        # The transport meets the same, and knows what to do.
        return parts
    for at, part in enumerate(parts):
        if size < len(part):
            return [memoryview(part)[size:], *parts[at + 1 :]]
        size -= len(part)
    return []
