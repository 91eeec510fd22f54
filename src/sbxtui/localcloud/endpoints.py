"""The listening ports of sandboxes: chosen so that they are still free after a restart, served with TLS."""

from __future__ import annotations

import asyncio
import errno
import logging
import random
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path

from sbxtui.localcloud.ceilings import Allowance, ceiling_of
from sbxtui.localcloud.clientstream import ClientStream
from sbxtui.localcloud.keys import HomeKeys
from sbxtui.localcloud.proxy import Connection, Door
from sbxtui.localcloud.rehearsal.calls import Rehearsal
from sbxtui.localcloud.vms import Vm

log = logging.getLogger(__name__)

_FIRST_PORT = 20_000
_TRIES = 50
_BACKLOG = 512
_TLS_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class EndpointFactory:
    """Opens endpoints of one home; with ceilings they carry no more than the platform's."""

    context: ssl.SSLContext
    keys: HomeKeys
    rehearsal: Rehearsal
    has_ceilings: bool = False

    async def open(self, port: int) -> SandboxEndpoint:
        """Bind a port without answering yet; 0 picks one.

        Raises:
            OSError: The port is taken.
        """
        return SandboxEndpoint(_bind(port) if port else _bind_any(), self)


class SandboxEndpoint:
    """One sandbox's port. Bound from the start; answers after `serve`."""

    def __init__(self, bound: socket.socket, factory: EndpointFactory) -> None:
        self._socket = bound
        self._factory = factory
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        """On 127.0.0.1."""
        return int(self._socket.getsockname()[1])

    async def serve(self, vm: Vm) -> None:
        """Begin to answer for a sandbox."""
        factory = self._factory
        ceiling = ceiling_of(vm.record.memory_mib) if factory.has_ceilings else None
        door = Door(vm, factory.keys, factory.rehearsal, Allowance(ceiling), has_ceilings=factory.has_ceilings)
        loop = asyncio.get_running_loop()

        def connected(client: ClientStream) -> None:
            task = loop.create_task(self._answer(door, client))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        self._server = await loop.create_server(
            lambda: ClientStream(connected),
            sock=self._socket,
            ssl=factory.context,
            ssl_handshake_timeout=_TLS_TIMEOUT_S,
            ssl_shutdown_timeout=_TLS_TIMEOUT_S,
            backlog=_BACKLOG,
        )

    async def _answer(self, door: Door, client: ClientStream) -> None:
        try:
            await Connection(door, client).serve()
        except Exception:
            log.exception("%s: a connection of its endpoint broke", door.vm.record.id)

    async def close(self) -> None:
        """Stop listening, and end every connection."""
        if self._server is not None:
            self._server.close()
        self._socket.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _bind_any() -> socket.socket:
    """A port below the range of outgoing connections: one of those would take it while the cloud is restarted."""
    last = max(_FIRST_PORT + 1, _first_ephemeral_port() - 1)
    for _ in range(_TRIES):
        try:
            return _bind(random.randint(_FIRST_PORT, last))
        except OSError as exc:
            if exc.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
    return _bind(0)


def _bind(port: int) -> socket.socket:
    # asyncio sets TCP_NODELAY only where the protocol is named; without it small answers wait 40 ms for an ACK.
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(("127.0.0.1", port))
        # SO_REUSEADDR lets two sockets bind one port as long as neither listens.
        bound.listen(_BACKLOG)
        bound.setblocking(False)
    except BaseException:
        bound.close()
        raise
    return bound


def _first_ephemeral_port() -> int:
    try:
        return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 32_768
