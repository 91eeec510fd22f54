"""The ways from a forwarded port to a sandbox: what each is and does for a port."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from sbxguest.mux.frames import MAX_STREAMS
from sbxtui.guest.tunnel import Tunnel, TunnelState
from sbxtui.services.forward.inlet import Inlet

if TYPE_CHECKING:
    from sbxtui.services.forward.port import Port


class Connection(Protocol):
    """One connection to a port of this machine; asyncio tells it what comes."""

    transport: asyncio.Transport | None

    @property
    def sent_bytes(self) -> int:
        """To the sandbox."""
        ...

    @property
    def received_bytes(self) -> int:
        """From the sandbox."""
        ...


class Way(Protocol):
    """A way to one sandbox, for all ports that are forwarded to it by one process."""

    @property
    def state(self) -> TunnelState:
        """How it is now."""
        ...

    @property
    def moved_bytes(self) -> int:
        """Another number whenever something moved."""
        ...

    @property
    def has_room(self) -> bool:
        """Whether it takes one more connection."""
        ...

    def inlet(self, port: Port) -> asyncio.Protocol:
        """A protocol for a new connection to a port."""
        ...

    async def run(self) -> None:
        """Keep it for as long as this is not cancelled.

        Raises:
            SbxError: There never will be a way any more.
        """
        ...


class TunnelWay:
    """Through a tunnel to the sandbox's guest: any protocol, and connections outlive the way."""

    def __init__(self, tunnel: Tunnel) -> None:
        self.tunnel = tunnel

    @property
    def state(self) -> TunnelState:
        """Of `Way`."""
        return self.tunnel.state

    @property
    def moved_bytes(self) -> int:
        """Of `Way`."""
        return self.tunnel.mux.moved_bytes

    @property
    def has_room(self) -> bool:
        """Of `Way`."""
        return len(self.tunnel.mux.streams) < MAX_STREAMS

    def inlet(self, port: Port) -> asyncio.Protocol:
        """Of `Way`."""
        return Inlet(self.tunnel, port, port.spec.gate)

    async def run(self) -> None:
        """Of `Way`; see `Tunnel.run`."""
        await self.tunnel.run()
