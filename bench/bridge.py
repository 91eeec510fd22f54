"""A sandbox's bridge that leads to one port: the way of whoever cannot say which, as nginx."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from functools import partial
from pathlib import Path

from sbxguest.acceptor import Acceptor
from sbxguest.bridge import Bridge
from sbxguest.listeners import listen_at

_MAX_LINKS = 1_000


class _OfOnePort(Bridge):
    """Joins without being told a port and without an answer; how bytes are relayed is the bridge's own."""

    def __init__(self, listener: socket.socket, port: int) -> None:
        super().__init__(partial(Acceptor, listener), {}, max_links=_MAX_LINKS)
        self._port = port

    async def _greet(self, host: socket.socket) -> None:
        guest = await self._dial(self._port)
        if guest is None:
            host.close()
            return
        with contextlib.suppress(OSError):
            self._relay.join(host, guest)


async def bridge(path: Path, port: int) -> None:
    """Lead from a unix socket to a port; the port is printed once it does."""
    _OfOnePort(listen_at(path), port)
    print(port, flush=True)
    await asyncio.Event().wait()
