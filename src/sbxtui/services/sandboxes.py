"""The life of sandboxes: suspend, resume, end, wait, adopt, rename, label, prune."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from time import monotonic

from sbxtui.control.api import ControlApi
from sbxtui.core.errors import (
    Conflict,
    SandboxNotFound,
    SbxError,
    StoreUnwritable,
    TimedOut,
    Unsupported,
    UsageError,
)
from sbxtui.core.model import (
    OLD_GUEST,
    Context,
    LaunchRequest,
    Phase,
    Registration,
    SandboxId,
    SandboxRecord,
    SandboxState,
)
from sbxtui.core.names import check_labels, check_name
from sbxtui.core.text import harmless_line, reason_words
from sbxtui.identity import own_identity
from sbxtui.services.activity import noted
from sbxtui.services.clocks import with_right_clock
from sbxtui.services.guests import Guests, speaks_v1
from sbxtui.services.planes import ControlPlanes
from sbxtui.services.troubles import Troubles
from sbxtui.store.events import Events
from sbxtui.store.leases import is_owner_alive
from sbxtui.store.registry import Registry

log = logging.getLogger(__name__)

_POLL_S = 0.2
_ONE_LOOK_S = 10.0
_CHANGE_DEADLINE_S = 60.0
_SHOWN = 5
_ENDING = "ending: its name is free, and it goes as soon as it has ended"


class Goal(StrEnum):
    """What `wait` can wait for; READY is running with an answering guest."""

    RUNNING = "running"
    SUSPENDED = "suspended"
    TERMINATED = "terminated"
    READY = "ready"


class Sandboxes:
    """Acts on sandboxes of one context. Every change is an event with its actor."""

    def __init__(
        self,
        context: Context,
        planes: ControlPlanes,
        registry: Registry,
        events: Events,
        guests: Guests,
        troubles: Troubles,
        actor: str,
    ) -> None:
        self._context = context
        self._planes = planes
        self._registry = registry
        self._events = events
        self._guests = guests
        self._troubles = troubles
        self._actor = actor

    async def find(self, reference: str) -> Registration:
        """The row a name, id or unique prefix of either means.

        Raises:
            SandboxNotFound: None. AmbiguousReference: More than one.
        """
        return await asyncio.to_thread(self._registry.find, self._context.name, reference)

    async def record(self, sandbox_id: SandboxId) -> SandboxRecord:
        """The control plane's full record, asked now."""
        plane = await self._planes.open(self._context)
        return await plane.get(sandbox_id)

    async def suspend(self, row: Registration) -> str:
        """Suspend; memory and disk are kept. Returns in words what the platform will do with it next.

        Raises:
            Conflict: It is gone, or did not get there.
        """
        with contextlib.suppress(SbxError):
            resting = await self._look(row)
            if resting is not None and resting.state is SandboxState.SUSPENDED:
                # Nothing is changed, so nothing is noted.
                return suspended_words(resting, datetime.now(UTC))
        async with noted(self._events, row, "sandbox.suspend", self._actor):
            plane = await self._planes.open_for_change(self._context)
            try:
                await plane.suspend(row.id)
            except Conflict as exc:
                raise await self._guests.explain(row, exc) from exc
            record = await self.wait(row, Goal.SUSPENDED, timeout_s=_CHANGE_DEADLINE_S)
        return suspended_words(record, datetime.now(UTC))

    async def resume(self, row: Registration) -> str:
        """Resume and wait until the guest answers.

        Raises:
            Conflict: It is gone, or did not get there.
        """
        async with noted(self._events, row, "sandbox.resume", self._actor):
            plane = await self._planes.open_for_change(self._context)
            try:
                await plane.resume(row.id)
            except Conflict as exc:
                raise await self._guests.explain(row, exc) from exc
            await self.wait(row, Goal.READY, timeout_s=_CHANGE_DEADLINE_S)
        await self._check_clock(row)
        return "running"

    async def _check_clock(self, row: Registration) -> None:
        """One that slept may have the time of when it fell asleep."""
        if speaks_v1(row):
            return
        with contextlib.suppress(SbxError):
            async with self._guests.connect(row) as guest:
                usage = await with_right_clock(guest, await guest.metrics.glance())
            await self._troubles.note_usage(row, usage)

    async def remove(self, row: Registration, *, is_waiting: bool = False) -> str:
        """Terminate, then forget the name and its tokens. Works on what is already gone.

        The name is forgotten only after the control plane accepted the end, so a failure loses nothing.

        Args:
            row: What to remove.
            is_waiting: Return only when the sandbox has ended, which a hung one does later than it was accepted.

        Returns:
            What is true now, in words: removed, still ending, or ended with its name still there on a full disk.

        Raises:
            TimedOut: It was waited for, and has not ended yet; its name stays.
        """
        if not row.id:
            return await self._forget_launch(row)
        began_s = monotonic()
        async with noted(self._events, row, "sandbox.remove", self._actor, is_told=True):
            plane = await self._planes.open_for_change(self._context)
            with contextlib.suppress(SandboxNotFound):
                await plane.terminate(row.id)
            if is_waiting:
                await self.wait(row, Goal.TERMINATED, timeout_s=_CHANGE_DEADLINE_S)
            try:
                await asyncio.to_thread(self._forget, row, "removed", began_s)
            except StoreUnwritable:
                return await self._forget_with_room(row)
        return "removed" if is_waiting or await self._has_ended(row) else _ENDING

    async def _forget_with_room(self, row: Registration) -> str:
        """The end of a sandbox frees its disk, so a full one may have room for the change once it has ended."""
        await self.wait(row, Goal.TERMINATED, timeout_s=_CHANGE_DEADLINE_S)
        try:
            await asyncio.to_thread(self._forget, row, "removed")
        except StoreUnwritable as exc:
            return f"ended, but its name stays for now: {exc.message}; `sbx prune` forgets it once there is room"
        return "removed"

    async def _has_ended(self, row: Registration) -> bool:
        try:
            return _is_reached(await self._look(row), Goal.TERMINATED)
        except SbxError as exc:
            log.info("whether %s has ended is not known: %s", row.name, exc.message)
            return False

    async def _forget_launch(self, row: Registration) -> str:
        if is_owner_alive(row.owner) and row.owner != str(own_identity()):
            raise Conflict(f"`{row.name}` is still being launched", hint="try again when it runs")
        await asyncio.to_thread(self._forget, row, "removed while its launch was open")
        return "forgotten; whether its launch made a machine is unknown: `sbx ls` would list it as untracked"

    async def wait(self, row: Registration, goal: Goal, *, timeout_s: float) -> SandboxRecord | None:
        """Wait until the sandbox is where it should be.

        Returns:
            Its record as last seen; None when it is gone so long that the control plane forgot it.

        Raises:
            Conflict: It was terminated, so it will never get there.
            TimedOut: It did not get there in time; it is left as it is.
        """
        seen, ends_s = "not seen", monotonic() + timeout_s
        try:
            # Without any time to wait it is looked at all the same: so scripts ask whether it is so now.
            async with asyncio.timeout(max(timeout_s, _ONE_LOOK_S)):
                while True:
                    record = await self._look(row)
                    seen = record.state.value if record else "TERMINATED"
                    if _is_reached(record, goal):
                        return await self._settle(row, record, goal, timeout_s)
                    if record is None or (record.state.is_gone and goal is not Goal.TERMINATED):
                        raise Conflict(f"`{row.name}` was terminated{_because(record)}, so it will not be {goal}")
                    if monotonic() >= ends_s:
                        raise TimeoutError
                    await asyncio.sleep(_POLL_S)
        except TimeoutError as exc:
            raise TimedOut(f"`{row.name}` is not {goal} after {timeout_s:g} s; it is {seen.lower()}") from exc

    async def rename(self, old: str, new: str) -> Registration:
        """Give a sandbox another name.

        Raises:
            UsageError: The name is not valid. NameTaken: Another sandbox has it.
        """
        check_name(new)
        row = await self.find(old)
        return await asyncio.to_thread(self._registry.rename, self._context.name, row.name, new, actor=self._actor)

    async def label(self, reference: str, changes: Mapping[str, str]) -> Registration:
        """Set labels; an empty value removes its label."""
        check_labels(changes)
        row = await self.find(reference)
        named = {key: value or None for key, value in changes.items()}
        return await asyncio.to_thread(
            self._registry.change_labels, self._context.name, row.name, named, actor=self._actor
        )

    async def adopt(self, sandbox_id: str, name: str | None) -> Registration:
        """Give a name to a machine of the account that has none here; without `name`, the one its guest tells.

        Args:
            sandbox_id: Its id, or a prefix that fits no other machine without a name.
            name: What to call it.

        Raises:
            SandboxNotFound: The context knows no such machine, or it is gone; the hint tells what can be adopted.
            NameTaken: Another sandbox has that name.
            Conflict: The machine has a name here already.
        """
        if name is not None:
            check_name(name)
        plane = await self._planes.open(self._context)
        record = await self._find_untracked(plane, sandbox_id)
        request = LaunchRequest(image_arn=record.image_arn, image_version=record.image_version)
        row = await asyncio.to_thread(
            self._registry.adopt, self._context.name, name, record, request=request, actor=self._actor
        )
        # A suspended one is not woken only to be asked for its name.
        if record.state is not SandboxState.RUNNING:
            return row
        return await self._take_what_it_tells(row, wants_name=name is None)

    async def _find_untracked(self, plane: ControlApi, reference: str) -> SandboxRecord:
        """A machine by its id, or by a prefix among those that have no name here."""
        with contextlib.suppress(SandboxNotFound, UsageError):
            record = await plane.get(SandboxId(reference))
            if not record.state.is_gone:
                return record
        rows = await asyncio.to_thread(self._registry.list, self._context.name)
        if row := next((row for row in rows if row.name == reference), None):
            raise Conflict(f"`{row.name}` has its name already", hint="`sbx rename` gives it another")
        tracked = {row.id for row in rows}
        free = [one.id for one in await plane.list() if not one.state.is_gone and one.id not in tracked]
        fitting = [one for one in free if reference and one.startswith(reference)]
        if len(fitting) == 1:
            return await plane.get(fitting[0])
        shown = ", ".join(f"`{one}`" for one in (fitting or free)[:_SHOWN])
        raise SandboxNotFound(
            f"no single machine of context `{self._context.name}` without a name fits `{harmless_line(reference)}`",
            hint=f"can be adopted: {shown}" if shown else "every machine of it has a name: `sbx ls` lists them",
            details={"adoptable": list(free)},
        )

    async def prune(self, *, is_dry_run: bool) -> list[str]:
        """Forget the names of sandboxes that are gone for good; returns them. Nothing that lives is touched."""
        # With the credentials of another account everything would look gone.
        plane = await self._planes.open_for_change(self._context)
        alive = {one.id for one in await plane.list() if not one.state.is_gone}
        pruned = []
        for row in await asyncio.to_thread(self._registry.list, self._context.name):
            if row.phase is not Phase.TRACKED or row.id in alive:
                continue
            # A listing may lag: only a sandbox that also says so itself is gone.
            if not _is_reached(await self._look(row), Goal.TERMINATED):
                continue
            if not is_dry_run:
                await asyncio.to_thread(self._forget, row, "pruned")
            pruned.append(row.name)
        return pruned

    async def _take_what_it_tells(self, row: Registration, *, wants_name: bool) -> Registration:
        """Complete an adopted row from the guest's own words, as far as it answers and its name is free and valid."""
        facts, name = await self._ask_guest(row)
        row = await asyncio.to_thread(self._registry.change_facts, row.context, row.name, facts, actor=self._actor)
        if not wants_name or not name:
            return row
        try:
            return await asyncio.to_thread(self._registry.rename, row.context, row.name, name, actor=self._actor)
        except SbxError as exc:
            log.info("%s keeps its made-up name: %s", row.name, exc.message)
            return row

    async def _ask_guest(self, row: Registration) -> tuple[dict[str, object], str]:
        """The facts and the name a guest tells; nothing when it does not answer."""
        try:
            async with self._guests.connect(row) as guest:
                hello = await guest.hello()
        except Unsupported:
            return {"guest_version": OLD_GUEST}, ""
        except SbxError as exc:
            log.info("%s does not tell who it is: %s", row.name, exc.message)
            return {}, ""
        facts: dict[str, object] = {
            "isolation": hello.isolation,
            "guest_version": hello.guest_version,
            "workdir": hello.workdir,
        }
        return facts, hello.name

    async def _look(self, row: Registration) -> SandboxRecord | None:
        plane = await self._planes.open(self._context)
        try:
            return await plane.get(row.id)
        except SandboxNotFound:
            return None

    async def _settle(
        self, row: Registration, record: SandboxRecord | None, goal: Goal, timeout_s: float
    ) -> SandboxRecord | None:
        if goal is Goal.READY:
            async with self._guests.connect(row) as guest:
                await guest.wait_until_ready(timeout_s=timeout_s)
        return record

    def _forget(self, row: Registration, reason: str, began_s: float | None = None) -> None:
        took_s = None if began_s is None else round(monotonic() - began_s, 3)
        self._registry.remove_row(row, actor=self._actor, reason=reason, took_s=took_s)


def _is_reached(record: SandboxRecord | None, goal: Goal) -> bool:
    if record is None:
        return goal is Goal.TERMINATED
    if goal is Goal.TERMINATED:
        return record.state is SandboxState.TERMINATED
    wanted = SandboxState.SUSPENDED if goal is Goal.SUSPENDED else SandboxState.RUNNING
    return record.state is wanted


def _because(record: SandboxRecord | None) -> str:
    words = reason_words(record.state_reason) if record else ""
    return f": {words}" if words else ""


def suspended_words(record: SandboxRecord | None, now: datetime) -> str:
    """What happens to a suspended sandbox if nobody resumes it."""
    if record is None:
        return "suspended"
    ends = []
    if record.idle:
        ends.append(now + timedelta(seconds=record.idle.suspended_s))
    if record.max_duration_s:
        ends.append(record.started_at + timedelta(seconds=record.max_duration_s))
    if not ends:
        return "suspended; kept until it is removed"
    return f"suspended; terminated by the platform at {min(ends).astimezone():%Y-%m-%d %H:%M} unless resumed"
