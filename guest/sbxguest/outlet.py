"""The way out of a sandbox that has no network: a loopback port that speaks to a proxy on the host.

Nothing in here can dial out. The host parks connections at the bridge's socket; a program that connects to the loopback
port gets one of them, and from then on talks to the host's proxy through it. Without a free one it waits a little, and
is then told so in HTTP, because that is what it came to speak.

Used by the bridge, which is part of every start: it imports nothing but the standard library and what lies beside it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import deque
from collections.abc import Callable

from sbxguest.acceptor import Acceptor

# What the host writes to a bridge in place of a port, and reads when a parked connection was taken.
PARK_WORD = "out"
TAKEN = b"c"

_WAIT_S = 10.0
_MAX_WAITING = 64
_DROPPED_BYTES = 65_536
_BODY = (
    b'{"error": {"code": "unavailable", "message": "the host\'s proxy does not answer", "retryable": true, '
    b'"hint": "try again in a moment", "details": {}}}\n'
)
_NOBODY = (
    b"HTTP/1.1 503 sbx: the host's proxy does not answer\r\nContent-Type: application/json\r\nConnection: close\r\n"
    b"Content-Length: %d\r\n\r\n%b" % (len(_BODY), _BODY)
)


class Outlet:
    """Pairs programs with parked connections; owns the listener, and every connection until it is paired.

    Args:
        listener: Listening on loopback, not blocking.
        join: Takes a connection of the host and one of a program, and relays between them.
        nobody: What a program is told that gets none.
    """

    def __init__(
        self, listener: socket.socket, join: Callable[[socket.socket, socket.socket], None], *, nobody: bytes = _NOBODY
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._join = join
        self._nobody = nobody
        self._parked: deque[socket.socket] = deque()
        self._waiting: dict[socket.socket, asyncio.TimerHandle] = {}
        self._acceptor = Acceptor(listener, has_room=lambda: len(self._waiting) < _MAX_WAITING, take=self._serve)

    def park(self, host: socket.socket) -> None:
        """Keep a connection of the host until a program wants it."""
        if self._waiting:
            program, timer = next(iter(self._waiting.items()))
            if self._pair(host, program):
                del self._waiting[program]
                timer.cancel()
                self._acceptor.go_on()
            return
        self._parked.append(host)
        # A parked connection is silent: whatever it says, even its end, means that nobody stands behind it.
        self._loop.add_reader(host, self._drop, host)

    def close(self) -> None:
        """Stop listening and close what is not paired."""
        self._acceptor.close()
        for host in list(self._parked):
            self._drop(host)
        for program, timer in self._waiting.items():
            timer.cancel()
            program.close()
        self._waiting.clear()

    def _serve(self, program: socket.socket) -> None:
        if program.family != socket.AF_UNIX:
            program.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while self._parked:
            host = self._parked.popleft()
            self._loop.remove_reader(host)
            if self._pair(host, program):
                return
        self._waiting[program] = self._loop.call_later(_WAIT_S, self._give_up, program)

    def _pair(self, host: socket.socket, program: socket.socket) -> bool:
        try:
            host.send(TAKEN)
        except OSError:
            host.close()
            return False
        self._join(host, program)
        return True

    def _drop(self, host: socket.socket) -> None:
        self._loop.remove_reader(host)
        self._parked.remove(host)
        host.close()

    def _give_up(self, program: socket.socket) -> None:
        self._waiting.pop(program)
        with contextlib.suppress(OSError):
            # What is unread at the close would take the answer with it.
            program.recv(_DROPPED_BYTES)
        with contextlib.suppress(OSError):
            program.send(self._nobody)
            program.shutdown(socket.SHUT_WR)
        program.close()
        self._acceptor.go_on()
