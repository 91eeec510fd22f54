"""Keeping a sandbox awake on purpose: the platform takes only traffic for activity, so somebody has to make some.

A link of the kind `keep-awake`, which the runner acts on. It asks the guest for its jobs often enough that the idle
window never passes, for as long as one runs, and no longer than its deadline and its budget allow. What sleeps is not
woken.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from sbxtui.core.errors import Conflict, GuestUnreachable, Throttled, UsageError
from sbxtui.core.life import KEEP_AWAKE
from sbxtui.core.logs import parse_instant
from sbxtui.core.model import Context, Registration, SandboxState
from sbxtui.core.pricing import prices_for, usd_text
from sbxtui.core.text import iso
from sbxtui.core.values import dataclass
from sbxtui.home import Home
from sbxtui.services.guests import Guests
from sbxtui.services.lookout import Lookout
from sbxtui.services.planes import ControlPlanes
from sbxtui.services.runnerctl import start_runner
from sbxtui.services.standing import is_wanted, rest
from sbxtui.store.doorbell import Listener
from sbxtui.store.events import Events
from sbxtui.store.links import Link, Links, Wanted

UNTIL_JOB = "job"
DEADLINE = timedelta(hours=8)
# So many looks in each idle window: one that fails must not be the last.
_LOOKS_PER_WINDOW = 4
_INTERVAL_MIN_S = 0.1
_INTERVAL_MAX_S = 60.0


@dataclass(frozen=True, slots=True)
class AwakeSpec:
    """Until when: while a job runs, or until an instant; never beyond `deadline`, nor for more than `budget_usd`."""

    until: datetime | None
    deadline: datetime
    budget_usd: float | None = None

    def as_row(self) -> dict[str, object]:
        """As a link's row has it."""
        return {
            "until": iso(self.until) if self.until else UNTIL_JOB,
            "deadline": iso(self.deadline),
            "budget_usd": self.budget_usd,
        }

    @classmethod
    def of(cls, spec: Mapping[str, Any]) -> AwakeSpec:
        """Of a link's row."""
        until = str(spec["until"])
        return cls(
            None if until == UNTIL_JOB else datetime.fromisoformat(until),
            datetime.fromisoformat(str(spec["deadline"])),
            spec.get("budget_usd"),
        )


def awake_spec(
    until: str, now: datetime, *, deadline: timedelta = DEADLINE, budget_usd: float | None = None
) -> AwakeSpec:
    """What a person says: until `job`, `2h` from now on, or an instant.

    Raises:
        UsageError: It is none of them.
    """
    instant = None
    if until != UNTIL_JOB:
        found = parse_instant(until, now)
        # A span is one that has passed, where logs are read.
        instant = found if "-" in until or ":" in until else now + (now - found)
    return AwakeSpec(instant, now + deadline, budget_usd)


def until_words(link: Link) -> str:
    """Until when a link keeps its sandbox awake, for people."""
    spec = AwakeSpec.of(link.spec)
    until = "while a job runs" if spec.until is None else f"until {_here(spec.until)}"
    most = f", for {usd_text(spec.budget_usd)} at most" if spec.budget_usd is not None else ""
    return f"{until}, at the latest until {_here(spec.deadline)}{most}"


def _here(at: datetime) -> str:
    return f"{at.astimezone():%Y-%m-%d %H:%M}"


class KeepAwake:
    """Sandboxes of one context that are kept awake."""

    def __init__(
        self,
        home: Home,
        context: Context,
        planes: ControlPlanes,
        guests: Guests,
        lookout: Lookout,
        links: Links,
        events: Events,
        actor: str,
    ) -> None:
        self._home = home
        self._context = context
        self._planes = planes
        self._guests = guests
        self._lookout = lookout
        self._links = links
        self._events = events
        self._actor = actor

    async def start(self, row: Registration, spec: AwakeSpec) -> Link:
        """Keep a sandbox awake from now on, in place of what was asked for before.

        Raises:
            Conflict: No job runs in it, and one was to be waited for.
            UsageError: That time is over already.
        """
        if spec.until is not None and spec.until <= datetime.now(UTC):
            raise UsageError(f"{_here(spec.until)} is over already", hint="--until job, 2h, or a later time")
        if spec.until is None and not await self._is_busy(row):
            raise Conflict(f"no job runs in `{row.name}`", hint="begin one first, or say --until 30m")
        await self.stop(row)
        link = await asyncio.to_thread(
            lambda: self._links.take(
                context=row.context,
                kind=KEEP_AWAKE,
                sandbox=row.name,
                sandbox_id=row.id,
                spec=spec.as_row(),
                owner="",
                actor=self._actor,
                is_detached=True,
            )
        )
        start_runner(self._home)
        return link

    async def stop(self, row: Registration) -> bool:
        """Let it fall asleep again; False when nothing kept it awake."""
        link = await asyncio.to_thread(self._links.find, row.context, KEEP_AWAKE, row.id)
        if link is None:
            return False
        if link.is_wanted:
            await asyncio.to_thread(lambda: self._links.want(link, Wanted.STOPPED, actor=self._actor))
        await asyncio.to_thread(self._links.leave, link, link.owner)
        await asyncio.to_thread(lambda: self._links.forget(link, actor=self._actor))
        return link.is_wanted

    def list(self, context: str) -> list[Link]:
        """What is kept awake, and what was until it ended by itself."""
        return self._links.list(KEEP_AWAKE, context)

    async def run(self, row: Registration, link: Link) -> None:
        """Act on a link until it is over; what the runner does."""
        spec = AwakeSpec.of(link.spec)
        scale = self._planes.time_scale(self._context)
        interval_s = _interval_s(row, scale)
        async with Listener(self._home) as bell:
            while await is_wanted(self._links, link):
                now = datetime.now(UTC)
                spent_usd = self._spent_usd(row, link, now, scale)
                reason = _over(spec, now, spent_usd)
                state = await self._guests.state(row)
                told: dict[str, object] = {"state": "asleep", "spent_usd": round(spent_usd, 6), "reason": ""}
                if not reason and state is SandboxState.RUNNING:
                    is_busy, reason = await self._touch(row, spec)
                    told["state"] = "awake" if is_busy else "unreachable"
                if reason:
                    await self._end(link, reason, told)
                    return
                await asyncio.to_thread(self._links.say, link, told)
                await rest(self._links, link, bell, interval_s)

    async def _touch(self, row: Registration, spec: AwakeSpec) -> tuple[bool, str]:
        """Ask the guest for its jobs, which is the traffic; whether it was reached, and why that was the last time."""
        try:
            is_busy = await self._is_busy(row)
        except (GuestUnreachable, Throttled, Conflict):
            return False, ""
        return True, "" if is_busy or spec.until is not None else "no job runs any more"

    async def _is_busy(self, row: Registration) -> bool:
        return any(not job.is_over for job in await self._lookout.look_at(row))

    def _spent_usd(self, row: Registration, link: Link, now: datetime, scale: float) -> float:
        memory = row.facts.get("memory_mib")
        prices = prices_for(self._context, memory if isinstance(memory, int) else 0)
        return (now - link.made_at).total_seconds() * scale / 3600 * prices.running_h

    async def _end(self, link: Link, reason: str, told: dict[str, object]) -> None:
        def write() -> None:
            self._links.say(link, {**told, "state": "over", "reason": reason})
            self._links.want(link, Wanted.STOPPED, actor=self._actor)
            self._events.record(
                context=link.context,
                kind="keep-awake.end",
                subject=link.sandbox,
                actor=self._actor,
                data={"reason": reason},
            )

        await asyncio.to_thread(write)


def _interval_s(row: Registration, scale: float) -> float:
    idle = row.request.idle
    if idle is None:
        return _INTERVAL_MAX_S
    return min(_INTERVAL_MAX_S, max(_INTERVAL_MIN_S, idle.max_idle_s / scale / _LOOKS_PER_WINDOW))


def _over(spec: AwakeSpec, now: datetime, spent_usd: float) -> str:
    """Why it is over by now; empty while it is not."""
    if spec.until is not None and now >= spec.until:
        return "its time is over"
    if now >= spec.deadline:
        return "its deadline has passed"
    if spec.budget_usd is not None and spent_usd >= spec.budget_usd:
        return f"its budget of ${spec.budget_usd:.2f} is spent"
    return ""
