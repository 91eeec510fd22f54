"""A port forwarded to a real guest, and servers to forward to. The guest of tests shares this machine's loopback."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from sbxtui.core.errors import SbxError
from sbxtui.guest.tunnel import Tunnel, TunnelState
from sbxtui.services.forward.listeners import bind_all
from sbxtui.services.forward.model import ForwardSpec, ForwardStatus
from sbxtui.services.forward.port import Port
from sbxtui.services.forward.ways import TunnelWay
from sbxtui.services.forward.webway import WebWay

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Forwarded:
    """An open forward. `asleep` is what the control plane says, `explained` what it says instead of a failure; `states`
    and `trouble` are what was told.
    """

    asleep: asyncio.Event = field(default_factory=asyncio.Event)
    states: list[tuple[TunnelState, str]] = field(default_factory=list)
    trouble: list[str] = field(default_factory=list)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    explained: SbxError | None = None
    tunnel: Tunnel = field(init=False)
    port: Port = field(init=False)

    @property
    def local_port(self) -> int:
        """Where it listens."""
        return self.port.spec.local_port

    @property
    def status(self) -> ForwardStatus:
        """What others are told of it."""
        return self.port.status(self.tunnel.state, "")

    async def connect(self, host: str = "127.0.0.1") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection of this machine to it."""
        return await asyncio.open_connection(host, self.local_port)

    async def until(self, state: TunnelState) -> None:
        """Wait until the tunnel has come to a state, now or before."""
        async with self.changed:
            await self.changed.wait_for(lambda: state in [one for one, _ in self.states])

    def told(self, state: TunnelState, reason: str) -> None:
        """The tunnel's own report."""
        self.states.append((state, reason))
        self._notify()

    def _notify(self) -> None:
        async def notify() -> None:
            async with self.changed:
                self.changed.notify_all()

        self._telling = asyncio.ensure_future(notify())


@asynccontextmanager
async def forwarded(endpoint: str, remote_port: int, *, spec: ForwardSpec | None = None) -> AsyncIterator[Forwarded]:
    """Forward a port of this machine to one of the guest at `endpoint`."""
    scene = Forwarded()

    async def is_asleep() -> bool:
        return scene.asleep.is_set()

    async def explain(error: SbxError) -> SbxError:
        return scene.explained or error

    scene.tunnel = Tunnel(
        endpoint, None, port=8080, verify=True, is_asleep=is_asleep, explain=explain, on_state=scene.told
    )
    (bound,) = bind_all([spec or ForwardSpec(0, remote_port)])
    scene.port = Port(bound, TunnelWay(scene.tunnel), scene.trouble.append)
    running = asyncio.create_task(scene.tunnel.run())
    try:
        await scene.port.open()
        yield scene
    finally:
        scene.port.close()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@dataclass
class Proxied:
    """An open forward through an endpoint. `tokens` are given out one after the other, the last one again and again;
    `explained` is what the control plane says instead of a failure.
    """

    tokens: list[str]
    states: list[tuple[TunnelState, str]] = field(default_factory=list)
    trouble: list[str] = field(default_factory=list)
    explained: SbxError | None = None
    way: WebWay = field(init=False)
    port: Port = field(init=False)

    @property
    def local_port(self) -> int:
        """Where it listens."""
        return self.port.spec.local_port

    @property
    def status(self) -> ForwardStatus:
        """What others are told of it."""
        return self.port.status(self.way.state, "")

    async def connect(self, host: str = "127.0.0.1") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection of this machine to it."""
        return await asyncio.open_connection(host, self.local_port, limit=1 << 20)

    async def token(self, *, refresh: bool = False) -> str:
        """Of `TokenSource`."""
        if refresh and len(self.tokens) > 1:
            self.tokens.pop(0)
        return self.tokens[0]


@asynccontextmanager
async def proxied(
    endpoint: str,
    remote_port: int,
    *,
    tokens: list[str],
    verify: ssl.SSLContext | bool = True,
    connections: int = 6,
) -> AsyncIterator[Proxied]:
    """Forward a port of this machine through `endpoint`."""
    scene = Proxied(tokens)

    async def explain(error: SbxError) -> SbxError:
        return scene.explained or error

    scene.way = WebWay(
        endpoint,
        lambda port: scene,
        verify=verify,
        connections=connections,
        explain=explain,
        on_state=lambda state, reason: scene.states.append((state, reason)),
    )
    (bound,) = bind_all([ForwardSpec(0, remote_port)])
    scene.port = Port(bound, scene.way, scene.trouble.append)
    running = asyncio.create_task(scene.way.run())
    try:
        await scene.port.open()
        yield scene
    finally:
        scene.port.close()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@asynccontextmanager
async def serving(serve: Serve, host: str = "127.0.0.1") -> AsyncIterator[int]:
    """A TCP server of this test; yields its port."""

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await serve(reader, writer)
        writer.close()

    server = await asyncio.start_server(one, host, 0)
    try:
        yield int(server.sockets[0].getsockname()[1])
    finally:
        server.close()


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Give back what comes, until its end."""
    while data := await reader.read(64 * 1024):
        writer.write(data)
        await writer.drain()
