"""A sandbox's ports, on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sbxtui.api.opened import Opened

if TYPE_CHECKING:
    from sbxtui.services.forward.desk import ForwardView
    from sbxtui.services.ports import OpenPort


class Ports(Opened):
    """A sandbox whose ports can be reached. Forwards go on when the program ends; they end with the sandbox."""

    async def ports(self) -> list[OpenPort]:
        """What listens inside, by number.

        Raises:
            Unsupported: Its guest does not tell.
        """
        return await self._services.port_desk.look(self._row)

    async def forward(self, remote_port: int, *, local_port: int | None = None, mode: str = "") -> ForwardView:
        """Open a port of the sandbox on this machine's loopback; returns once it is listened for.

        Args:
            remote_port: Of the sandbox.
            local_port: Of this machine, 0 for any; None: the same, or the next that is free.
            mode: `tunnel` or `proxy`; empty as its image allows.

        Raises:
            UsageError: It is not to be forwarded. AddressInUse: `local_port` is taken.
        """
        from sbxtui.services.forward.model import parse_mode

        return await self._services.port_desk.start(self._row, remote_port, local_port, mode=parse_mode(mode))

    async def forwards(self) -> list[ForwardView]:
        """The sandbox's forwards, by port of this machine, and how they are."""
        return list(await self._services.port_desk.forwards(self._row))

    async def stop_forward(self, local_port: int) -> None:
        """Listen no more on a port of this machine, and end its connections.

        Raises:
            NotFound: It is not forwarded to this sandbox.
        """
        await self._services.port_desk.stop(self._row, local_port)
