"""What listens inside sandboxes: asked by a person, or watched so that no sandbox is woken or kept awake by it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from sbxtui.core.errors import SandboxNotFound, SbxError, Unsupported
from sbxtui.core.model import Registration, SandboxState
from sbxtui.core.text import harmless_line
from sbxtui.guest.ports import Told, ports_followed, ports_now
from sbxtui.home import Home
from sbxtui.services.activity import follow_events
from sbxtui.services.guests import Guests, speaks_v1
from sbxtui.store.events import Events
from sbxtui.store.locks import try_lock

if TYPE_CHECKING:
    from sbxtui.services.jobs import Jobs

log = logging.getLogger(__name__)

KIND = "port.listening"
_EVENTS_LOOKED_AT = 500
# So long after another process of this home, the same is no news.
_SAME = timedelta(minutes=1)
_LOOK_EVERY_S = 10.0


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

    def __init__(self, home: Home, guests: Guests, jobs: Jobs, events: Events, actor: str) -> None:
        self._home = home
        self._guests = guests
        self._jobs = jobs
        self._events = events
        self._actor = actor
        self._known: dict[str, frozenset[tuple[int, int]]] = {}

    async def look(self, row: Registration) -> list[OpenPort]:
        """What listens in a sandbox now, by number; each that is new since anybody looked last is an event.

        Raises:
            Unsupported: Its guest does not tell. GuestUnreachable, Conflict, NotFound: As `Guests.connect`.
        """
        async with self._guests.connect(row) as guest:
            told = await ports_now(guest.transport)
        return await self._seen(row, told)

    async def began(self, row: Registration) -> AsyncGenerator[OpenPort, None]:
        """The ports that something new listens on from now on, as whoever watches notices them; never ends."""
        after = await asyncio.to_thread(self._events.latest_seq)
        batches = follow_events(self._home, self._events, after_seq=after, subject=row.name)
        async with aclosing(batches):
            async for batch in batches:
                for event in batch:
                    if event.kind == KIND and event.context == row.context:
                        yield _decoded(event.data)

    async def watch(self, row: Registration) -> None:
        """Write down what begins to listen, until the sandbox has ended. One process of this home does it at a time.

        The sandbox is asked when it runs, and a command goes on in it or was begun a moment ago, or it woke: then it is
        awake anyway. The answer is silent while nothing changes, and stays open for as long as it lasts.
        """
        if speaks_v1(row):
            return
        path = self._home.state_dir / f"ports-{row.id}.lock"
        try:
            while (lock := await asyncio.to_thread(try_lock, path)) is None:
                await asyncio.sleep(_LOOK_EVERY_S)
        except OSError as exc:
            log.warning("%s: %s", path, exc)
            return
        try:
            await self._watch(row)
        finally:
            path.unlink(missing_ok=True)
            lock.close()

    async def _watch(self, row: Registration) -> None:
        asked_at: datetime | None = None
        while True:
            try:
                await self._until_awake(row, asked_at)
                asked_at = datetime.now(UTC)
                async with self._guests.connect(row) as guest, aclosing(ports_followed(guest.transport)) as followed:
                    async for told in followed:
                        await self._seen(row, told)
            except (SandboxNotFound, Unsupported) as exc:
                log.debug("%s: %s", row.name, exc.message)
                return
            except SbxError as exc:
                log.debug("%s: %s", row.name, exc.message)
            await asyncio.sleep(_LOOK_EVERY_S)

    async def _until_awake(self, row: Registration, asked_at: datetime | None) -> None:
        """Wait until asking the sandbox changes nothing about when it falls asleep."""
        has_slept = False
        while True:
            if await self._guests.state(row) is not SandboxState.RUNNING:
                has_slept = True
            elif has_slept or row.request.idle is None or await self._has_begun(row, asked_at):
                return
            await asyncio.sleep(_LOOK_EVERY_S)

    async def _has_begun(self, row: Registration, asked_at: datetime | None) -> bool:
        """Whether a command was begun since it was asked last, and goes on or was begun within half an idle window.

        What goes on may listen at any time later, and the answer that is open by then tells it.
        """
        idle = row.request.idle
        recent = datetime.now(UTC) - timedelta(seconds=idle.max_idle_s / 2 / self._guests.time_scale if idle else 0.0)
        since = asked_at or datetime.min.replace(tzinfo=UTC)
        jobs = await self._jobs.known(row.context, row.id)
        return any(job.created_at > since and (job.created_at > recent or not job.is_over) for job in jobs)

    async def _seen(self, row: Registration, told: Told) -> list[OpenPort]:
        found = [_decoded(one) for one in told]
        await asyncio.to_thread(self._announce, row, found)
        return found

    def _announce(self, row: Registration, found: list[OpenPort]) -> None:
        now = {(one.port, one.pid): one for one in found}
        known = self._known.get(row.id)
        if known is None:
            known = frozenset(
                (_whole(event.data.get("port")), _whole(event.data.get("pid")))
                for event in self._events.tail(_EVENTS_LOOKED_AT, context=row.context, subject=row.name)
                if event.kind == KIND
            )
        self._known[row.id] = frozenset(now)
        for key in sorted(now.keys() - known):
            one = now[key]
            data = {"port": one.port, "pid": one.pid, "process": one.process, "addresses": one.addresses}
            self._events.record_once(
                context=row.context, kind=KIND, subject=row.name, actor=self._actor, data=data, within=_SAME
            )


def _decoded(told: Mapping[str, Any]) -> OpenPort:
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
