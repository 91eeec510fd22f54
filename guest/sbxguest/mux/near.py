"""Connections that do not leave their machine."""

from __future__ import annotations

import contextlib
import socket
from typing import Protocol

_LOOPBACKS = ("127.", "::1", "::ffff:127.")


class Socket(Protocol):
    """What a socket and asyncio's view of one have in common."""

    def getpeername(self) -> object:
        """As a socket's."""
        ...

    def setsockopt(self, level: int, name: int, value: bytes, /) -> None:
        """As a socket's."""
        ...


def is_near(sock: Socket) -> bool:
    """Whether the peer is on this machine."""
    with contextlib.suppress(OSError):
        peer = sock.getpeername()
        return isinstance(peer, tuple) and str(peer[0]).startswith(_LOOPBACKS)
    return False


def tune(sock: Socket) -> None:
    """Have nobody guess how much the way to a peer on this machine carries.

    Where BBR does it for all, the guess is made of how fast the other side read so far, which waits for a processor and
    not for a network; and it holds for long.
    """
    with contextlib.suppress(OSError, AttributeError):
        if is_near(sock):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
