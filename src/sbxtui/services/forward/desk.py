"""The ports of a sandbox as a person looks at them: what listens inside, what is forwarded here, and how that is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any

from sbxtui.core.errors import NotFound
from sbxtui.core.model import Registration
from sbxtui.core.ports import PortPair
from sbxtui.core.text import harmless_line
from sbxtui.home import Home
from sbxtui.services.forward.forwards import Forwards
from sbxtui.services.forward.model import ForwardSpec, Mode, facts_of, specs_of
from sbxtui.services.ports import OpenPort, Ports
from sbxtui.store.doorbell import LOOKING_POLL_S, Listener
from sbxtui.store.links import Link
from sbxtui.store.registry import Registry

# Whether the process that acts on a link lives is not told by any bell.
_EVERY_S = 2.0
_ROWS_EVERY_S = 5.0


@dataclass(frozen=True, slots=True)
class ForwardView:
    """A forward as a face shows it; all text is harmless.

    Attributes:
        local_port: Of this machine.
        remote_port: Of the sandbox.
        url: For a browser.
        mode: `tunnel` or `proxy`.
        state: Of the way to the sandbox: `idle`, `up`, `suspended`, …; `not running` where nobody acts on it.
        reason: Why it is in that state.
        last_error: The last connection that came to nothing, in words.
        open: Connections now.
        accepted: Connections so far.
        sent_bytes: To the sandbox.
        received_bytes: From it.
        is_detached: It goes on when sbx ends.
    """

    local_port: int
    remote_port: int
    url: str
    mode: str
    state: str
    reason: str = ""
    last_error: str = ""
    open: int = 0
    accepted: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0
    is_detached: bool = True

    @classmethod
    def of(cls, link: Link) -> ForwardView:
        """Of a link."""
        facts = facts_of(link)
        return cls(
            facts["local_port"],
            facts["remote_port"],
            facts["url"],
            facts["mode"],
            harmless_line(str(facts["state"])),
            harmless_line(str(facts.get("reason") or "")),
            harmless_line(str(facts.get("last_error") or "")),
            open=_whole(facts, "open_connections"),
            accepted=_whole(facts, "accepted_connections"),
            sent_bytes=_whole(facts, "sent_bytes"),
            received_bytes=_whole(facts, "received_bytes"),
            is_detached=link.is_detached,
        )


class PortDesk:
    """Where the ports of one context's sandboxes are looked at, forwarded and given back.

    Args:
        home: Of the store.
        registry: Which sandboxes there are.
        forwards: Does it.
        ports: Looks inside.
        reserved: Ports of a sandbox that are not forwarded, and what they are.
    """

    def __init__(
        self, home: Home, registry: Registry, forwards: Forwards, ports: Ports, reserved: Mapping[int, str]
    ) -> None:
        self._home = home
        self._registry = registry
        self._forwards = forwards
        self._ports = ports
        self._reserved = reserved

    async def follow(self, row: Registration) -> AsyncGenerator[tuple[ForwardView, ...], None]:
        """The forwards of a sandbox, then at each change of them. Ends only when closed; sends the sandbox nothing."""
        told: tuple[ForwardView, ...] | None = None
        async with Listener(self._home, poll_s=LOOKING_POLL_S) as bell:
            while True:
                views = await self.forwards(row)
                if views != told:
                    told = views
                    yield views
                await bell.wait(_EVERY_S)

    async def forwards(self, row: Registration) -> tuple[ForwardView, ...]:
        """The forwards of a sandbox, by port of this machine."""
        try:
            links = await asyncio.to_thread(self._forwards.of, row)
        except NotFound:
            return ()
        return tuple(sorted(map(ForwardView.of, links), key=lambda view: view.local_port))

    async def watch(self, context: str) -> None:
        """Have it written down what begins to listen in the sandboxes of a context; never ends. See `Ports.watch`."""
        watches: dict[str, asyncio.Task[None]] = {}
        try:
            while True:
                rows = await asyncio.to_thread(self._registry.list, context)
                for row in rows:
                    if row.id and row.id not in watches:
                        watches[row.id] = asyncio.create_task(self._ports.watch(row))
                for gone in watches.keys() - {row.id for row in rows}:
                    watches.pop(gone).cancel()
                await asyncio.sleep(_ROWS_EVERY_S)
        finally:
            for task in watches.values():
                task.cancel()
            await asyncio.gather(*watches.values(), return_exceptions=True)

    async def look(self, row: Registration) -> list[OpenPort]:
        """What listens inside; asks the sandbox. Raises as `Ports.look`."""
        return await self._ports.look(row)

    async def start(
        self, row: Registration, remote_port: int, local_port: int | None = None, *, mode: Mode | None = None
    ) -> ForwardView:
        """Forward a port, and leave it to the runner.

        Args:
            row: The sandbox.
            remote_port: Of the sandbox.
            local_port: Of this machine, 0 for any; None: the same, or the next that is free.
            mode: None: as its image allows.

        Raises:
            UsageError: It is not to be forwarded. AddressInUse: The port is taken. SbxError: It cannot be.
        """
        chosen = await self._forwards.mode(row, mode)
        pair = PortPair(remote_port if local_port is None else local_port, remote_port)
        (spec,) = specs_of([pair], bind="", hosts=(), origins=(), reserved=self._reserved, mode=chosen)
        (link,) = await self._forwards.detach(row, [await asyncio.to_thread(self._free, spec, local_port is None)])
        return ForwardView.of(link)

    async def stop(self, row: Registration, local_port: int) -> None:
        """End the forward of a port of this machine. Raises as `Forwards.stop`."""
        await self._forwards.stop(row, [local_port])

    def _free(self, spec: ForwardSpec, is_any: bool) -> ForwardSpec:
        """The forward with a local port that was free a moment ago."""
        (bound,) = self._forwards.bind([spec], any_port=is_any)
        bound.close()
        return bound.spec


def _whole(facts: Mapping[str, Any], key: str) -> int:
    value = facts.get(key)
    return value if isinstance(value, int) else 0
