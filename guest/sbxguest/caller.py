"""The way into a sandbox that can only call out: connections to its host, each of which waits until somebody takes it.

As `Acceptor` for the bridge of a virtual machine.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

from sbxguest.outlet import TAKEN

_WAITING = 4
_PAUSE_S = 0.1
# Of a vsock: the machine this one runs on.
_HOST_CID = 2


async def dial_host(port: int) -> socket.socket:
    """A connection to a port of the host, not blocking.

    Raises:
        OSError: Nobody is there, or this is no virtual machine.
    """
    sock = socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, (_HOST_CID, port))
    except BaseException:
        sock.close()
        raise
    return sock


class Caller:
    """Calls in the running loop from the start; a call that is taken is followed by another.

    Args:
        dial: Makes one call.
        has_room: Whether one more client may come in; when not, no call is made until `go_on`.
        take: Gets each connection on which somebody is, not blocking, and owns it.
    """

    def __init__(
        self,
        dial: Callable[[], Awaitable[socket.socket]],
        *,
        has_room: Callable[[], bool],
        take: Callable[[socket.socket], None],
    ) -> None:
        self._dial = dial
        self._has_room = has_room
        self._take = take
        self._waiting: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self.go_on()

    def go_on(self) -> None:
        """There may be room again."""
        while not self._is_closed and len(self._waiting) < _WAITING and self._has_room():
            task = asyncio.get_running_loop().create_task(self._call())
            self._waiting.add(task)
            task.add_done_callback(self._on_called)

    def close(self) -> None:
        """Hang up, and call no more."""
        self._is_closed = True
        for task in list(self._waiting):
            task.cancel()

    def _on_called(self, task: asyncio.Task[None]) -> None:
        self._waiting.discard(task)
        self.go_on()

    async def _call(self) -> None:
        try:
            sock = await self._dial()
        except OSError:
            await asyncio.sleep(_PAUSE_S)
            return
        is_taken = False
        try:
            is_taken = await asyncio.get_running_loop().sock_recv(sock, 1) == TAKEN
        except OSError:
            pass
        finally:
            if not is_taken:
                sock.close()
        if is_taken:
            self._take(sock)
        elif not self._is_closed:
            # Whoever hung up may do so at once again.
            await asyncio.sleep(_PAUSE_S)
