"""Messages between init, its shims and the server: one JSON object a datagram, with descriptors beside it.

Shared by processes that must stay small, so it imports little (no dataclasses, no logging).
"""

from __future__ import annotations

import json
import socket
from array import array
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from sbxguest import descriptors

MAX_MESSAGE_BYTES = 64 * 1024
MAX_FDS = 24


def make_pair() -> tuple[socket.socket, socket.socket]:
    """Two connected ends that keep message borders, neither inherited by programs that are started."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


class Link:
    """One end. Never blocks: what the other end does not take now waits in a queue until `flush`.

    The caller watches the socket: `receive` when readable, `flush` when writable and `has_pending`.
    """

    __slots__ = ("_queue", "is_closed", "sock")

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.sock = sock
        self.is_closed = False
        self._queue: deque[tuple[bytes, Sequence[int], bool]] = deque()

    @property
    def has_pending(self) -> bool:
        """Whether something waits for the other end."""
        return bool(self._queue)

    def post(self, message: dict[str, Any], fds: Sequence[int] = (), *, closes_fds: bool = False) -> None:
        """Send, now or later, in order. With `closes_fds` the descriptors are this link's to close once sent."""
        self._queue.append((json.dumps(message, separators=(",", ":")).encode(), fds, closes_fds))
        self.flush()

    def flush(self) -> None:
        """Send what waits, as far as the other end takes it; a dead end drops it all."""
        while self._queue:
            data, fds, closes_fds = self._queue[0]
            if not self.is_closed:
                try:
                    socket.send_fds(self.sock, [data], fds)
                except BlockingIOError:
                    return
                except OSError:
                    self.is_closed = True
            self._queue.popleft()
            if closes_fds:
                descriptors.close_all(fds)

    def receive(self) -> Iterable[tuple[dict[str, Any], list[int]]]:
        """Yield what came; the receiver owns the descriptors. Sets `is_closed` at the other end's end."""
        while not self.is_closed:
            try:
                data, fds = _receive(self.sock)
            except BlockingIOError:
                return
            except OSError:
                data, fds = b"", array("i")
            if not data:
                self.is_closed = True
                return
            yield json.loads(data), list(fds)

    def close(self) -> None:
        """Give up what waits and close the socket."""
        self.is_closed = True
        self.flush()
        self.sock.close()


def _receive(sock: socket.socket) -> tuple[bytes, array[int]]:
    """A message and its descriptors. `socket.recv_fds` drops its flags, and every program would inherit them."""
    fds = array("i")
    data, beside, _flags, _address = sock.recvmsg(
        MAX_MESSAGE_BYTES, socket.CMSG_SPACE(MAX_FDS * fds.itemsize), socket.MSG_CMSG_CLOEXEC
    )
    for level, kind, payload in beside:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds.frombytes(payload[: len(payload) - len(payload) % fds.itemsize])
    return data, fds
