"""Taking connections from a listening socket, while there is room for them.

Used by the bridge, which is part of every start: it imports nothing but the standard library.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable

log = logging.getLogger("sbxguest.acceptor")

# Others of this loop get their turn between so many.
_ACCEPTS_PER_TURN = 64
_PAUSE_S = 0.1


class Acceptor:
    """Accepts in the running loop from the start; owns the listener.

    Args:
        listener: Listening, not blocking.
        has_room: Whether one more may come in; when not, connections wait in the kernel's queue until `go_on`.
        take: Gets each connection, not blocking, and owns it.
    """

    def __init__(
        self, listener: socket.socket, *, has_room: Callable[[], bool], take: Callable[[socket.socket], None]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._listener = listener
        self._has_room = has_room
        self._take = take
        self._is_accepting = False
        self.go_on()

    def go_on(self) -> None:
        """There may be room again."""
        if not self._is_accepting and self._listener.fileno() >= 0:
            self._is_accepting = True
            self._loop.add_reader(self._listener, self._on_acceptable)

    def close(self) -> None:
        """Stop listening."""
        self._pause()
        self._listener.close()

    def _pause(self) -> None:
        self._is_accepting = False
        self._loop.remove_reader(self._listener)

    def _on_acceptable(self) -> None:
        for _ in range(_ACCEPTS_PER_TURN):
            if not self._has_room():
                self._pause()
                return
            try:
                connection, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as exc:
                log.warning("accept: %s", exc)
                self._pause()
                self._loop.call_later(_PAUSE_S, self.go_on)
                return
            connection.setblocking(False)
            self._take(connection)
