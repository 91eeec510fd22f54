"""What listens inside sandboxes. Looking is asking the guest, which wakes it: only a person or a program does that."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime

from sbxtui.core.model import Registration
from sbxtui.core.text import harmless_line
from sbxtui.services.guests import Guests
from sbxtui.store.events import Events

_KIND = "port.listening"
_EVENTS_LOOKED_AT = 500


@dataclass(frozen=True, slots=True)
class OpenPort:
    """A port that something in a sandbox listens on; all text is harmless.

    Attributes:
        addresses: What it is bound to.
        process: The name of who listens; empty when it cannot be told.
        since: When that process began; None when it cannot be told.
    """

    port: int
    addresses: tuple[str, ...]
    pid: int
    process: str
    since: datetime | None


class Ports:
    """Asks guests which ports are listened on, and writes down those that are new."""

    def __init__(self, guests: Guests, events: Events, actor: str) -> None:
        self._guests = guests
        self._events = events
        self._actor = actor
        self._known: dict[str, frozenset[tuple[int, int]]] = {}

    async def look(self, row: Registration) -> list[OpenPort]:
        """What listens in a sandbox now, by number; each that is new since anybody looked last is an event.

        Raises:
            Unsupported: Its guest does not tell. GuestUnreachable, Conflict, NotFound: As `Guests.connect`.
        """
        return (await self._look(row))[0]

    async def news(self, row: Registration) -> list[OpenPort]:
        """Of the same, what is new since anybody looked last; raises as `look`."""
        return (await self._look(row))[1]

    async def _look(self, row: Registration) -> tuple[list[OpenPort], list[OpenPort]]:
        async with self._guests.connect(row) as guest:
            answer = await guest.transport.call("GET", "/v2/ports", doing="asking what listens")
        told = answer.get("ports")
        found = [_decoded(one) for one in told if isinstance(one, dict)] if isinstance(told, list) else []
        return found, await asyncio.to_thread(self._announce, row, found)

    def _announce(self, row: Registration, found: list[OpenPort]) -> list[OpenPort]:
        now = {(one.port, one.pid): one for one in found}
        known = self._known.get(row.id)
        if known is None:
            known = frozenset(
                (_whole(event.data.get("port")), _whole(event.data.get("pid")))
                for event in self._events.tail(_EVENTS_LOOKED_AT, context=row.context, subject=row.name)
                if event.kind == _KIND
            )
        self._known[row.id] = frozenset(now)
        news = [now[key] for key in sorted(now.keys() - known)]
        for one in news:
            data = {"port": one.port, "pid": one.pid, "process": one.process}
            self._events.record(context=row.context, kind=_KIND, subject=row.name, actor=self._actor, data=data)
        return news


def _decoded(told: dict[str, object]) -> OpenPort:
    addresses, since_s = told.get("addresses"), told.get("since_s")
    return OpenPort(
        _whole(told.get("port")),
        tuple(harmless_line(str(one)) for one in addresses) if isinstance(addresses, list) else (),
        _whole(told.get("pid")),
        harmless_line(str(told.get("process") or "")),
        _instant(since_s) if isinstance(since_s, int | float) and since_s > 0 else None,
    )


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0


def _instant(since_s: float) -> datetime | None:
    try:
        return datetime.fromtimestamp(since_s, UTC)
    except (OverflowError, ValueError, OSError):
        return None
