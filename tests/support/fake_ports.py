"""Ports in memory behind the shape of `PortDesk`, for pilot tests of the dashboard; the real one has its own tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from sbxtui.core.errors import SbxError
from sbxtui.core.model import Registration
from sbxtui.services.forward.desk import ForwardView
from sbxtui.services.forward.model import Mode
from sbxtui.services.ports import OpenPort


def now() -> datetime:
    """The present instant."""
    return datetime.now(UTC)


def open_port(port: int, process: str, age_s: float = 90.0) -> OpenPort:
    """A port something listens on."""
    return OpenPort(port, ("127.0.0.1",), 40 + port % 10, process, now() - timedelta(seconds=age_s))


def forward_view(remote_port: int, local_port: int = 0, state: str = "up", **more: object) -> ForwardView:
    """A forward that was used a little."""
    local_port = local_port or remote_port
    figures = {"open": 2, "accepted": 9, "sent_bytes": 4_096, "received_bytes": 1_500_000, **more}
    url = f"http://api-{remote_port}.localhost:{local_port}"
    return ForwardView(local_port, remote_port, url, "tunnel", state, **figures)  # type: ignore[arg-type]


@dataclass
class FakePortDesk:
    """What listens and what is forwarded, and what was done; `show` tells whoever watches."""

    found: list[OpenPort] = field(default_factory=list)
    views: tuple[ForwardView, ...] = ()
    error: SbxError | None = None
    done: list[str] = field(default_factory=list)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def show(self, *views: ForwardView) -> None:
        """Have these forwards from now on."""
        self.views = views
        self._changed.set()

    async def follow(self, row: Registration) -> AsyncGenerator[tuple[ForwardView, ...], None]:
        while True:
            self._changed.clear()
            yield self.views
            await self._changed.wait()

    async def watch(self, context: str) -> None:
        """Nothing begins to listen."""

    async def look(self, row: Registration) -> list[OpenPort]:
        self._do("look")
        return list(self.found)

    async def start(
        self, row: Registration, remote_port: int, local_port: int | None = None, *, mode: Mode | None = None
    ) -> ForwardView:
        self._do(f"start {remote_port} at {local_port}")
        view = forward_view(remote_port, local_port or remote_port)
        self.show(*self.views, view)
        return view

    async def stop(self, row: Registration, local_port: int) -> None:
        self._do(f"stop {local_port}")
        self.show(*(one for one in self.views if one.local_port != local_port))

    def _do(self, what: str) -> None:
        if self.error is not None:
            raise self.error
        self.done.append(what)
