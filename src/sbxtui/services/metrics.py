"""What sandboxes use, without keeping any of them awake for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from datetime import UTC, datetime

from sbxtui.core.errors import Conflict, SbxError, Unsupported
from sbxtui.core.jobs import Job
from sbxtui.core.model import Context, Registration, Sandbox, SandboxState
from sbxtui.core.sparks import in_columns, spark
from sbxtui.core.text import short_age
from sbxtui.core.usage import RESTING, Usage
from sbxtui.core.values import dataclass
from sbxtui.services.clocks import with_right_clock
from sbxtui.services.guests import Guests, speaks_v1
from sbxtui.services.inventory import Inventories, Inventory
from sbxtui.services.jobs import Jobs
from sbxtui.services.looks import Looks
from sbxtui.services.planes import ControlPlanes
from sbxtui.services.troubles import Troubles
from sbxtui.store.registry import Registry
from sbxtui.store.samples import Samples

_AT_ONCE = 8
_PATIENCE_S = 10.0
# What the sparklines of lists show.
SPARK_S = 300.0
SPARK_WIDTH = 8


@dataclass(frozen=True, slots=True)
class SandboxUsage:
    """A sandbox and what it uses; `why` says why nothing is known, or nothing newer."""

    sandbox: Sandbox
    usage: Usage | None = None
    why: str = ""


class Metrics:
    """Samples of the sandboxes of one context."""

    def __init__(
        self,
        context: Context,
        planes: ControlPlanes,
        inventories: Inventories,
        registry: Registry,
        jobs: Jobs,
        guests: Guests,
        samples: Samples,
        troubles: Troubles,
        looks: Looks,
    ) -> None:
        self._context = context
        self._planes = planes
        self._inventories = inventories
        self._registry = registry
        self._jobs = jobs
        self._guests = guests
        self._samples = samples
        self._troubles = troubles
        self._looks = looks

    async def sample(self, row: Registration) -> Usage:
        """What a sandbox uses now; a person asks for this one, so it is asked even while it does nothing.

        Raises:
            Unsupported: Its image has an old guest. Conflict: It does not run, and looking shall not wake it.
            GuestUnreachable: It does not answer.
        """
        plane = await self._planes.open(self._context)
        record = await plane.get(row.id)
        if record.state is not SandboxState.RUNNING:
            raise Conflict(f"`{row.name}` is {record.state.lower()}", hint=f"resume it with `sbx start {row.name}`")
        return await self._sample(row)

    async def last_hour(self, row: Registration) -> list[Usage]:
        """What faces of this home saw of it in the last hour, oldest first, every five seconds at most."""
        return await asyncio.to_thread(self._samples.last_hour, row.context, row.id, datetime.now(UTC))

    async def cpu_of_late(self, sandboxes: Sequence[Sandbox]) -> dict[str, str]:
        """What faces of this home saw of processors in the last minutes, as a sparkline each, by id; asks nobody."""

        def read() -> dict[str, str]:
            now = datetime.now(UTC)
            found = {}
            for one in sandboxes:
                points = self._samples.cpu_of_late(one.context, one.id, now, SPARK_S) if one.id else []
                if points:
                    found[str(one.id)] = spark(in_columns(points, now.timestamp(), SPARK_S, SPARK_WIDTH), top=100.0)
            return found

        return await asyncio.to_thread(read)

    async def follow(
        self, row: Registration, *, interval_s: float, is_asked: bool = True
    ) -> AsyncGenerator[Usage | None, None]:
        """What a sandbox uses, now and each `interval_s`; None for each time it was left alone to fall asleep.

        Args:
            row: Which.
            interval_s: Between two looks.
            is_asked: Whether a person asks: then it is asked at once, whatever it does.
        """
        if is_asked:
            yield await self.sample(row)
            await asyncio.sleep(interval_s)
        while True:
            jobs = await self._jobs.known(row.context, row.id)
            yield await self.sample(row) if await self._looks.may(row, jobs) else None
            await asyncio.sleep(interval_s)

    async def all(self) -> tuple[Inventory, list[SandboxUsage]]:
        """Every tracked sandbox of the context and what it uses; those that would be kept awake by it are not asked."""
        inventory, noted, rows = await asyncio.gather(
            self._inventories.live(self._context),
            self._jobs.known(self._context.name),
            asyncio.to_thread(self._registry.list, self._context.name),
        )
        by_id = {row.id: row for row in rows if row.id}
        tracked = [one for one in inventory.sandboxes if one.id in by_id and not one.state.is_gone]
        gate = asyncio.Semaphore(_AT_ONCE)

        async def one(sandbox: Sandbox) -> SandboxUsage:
            if sandbox.state is not SandboxState.RUNNING:
                return SandboxUsage(sandbox, why=sandbox.state.lower())
            async with gate:
                own = [job for job in noted if job.sandbox_id == sandbox.id]
                return await self._ask(sandbox, by_id[sandbox.id], own)

        return inventory, list(await asyncio.gather(*map(one, tracked)))

    async def glance(self, row: Registration) -> Usage:
        """The same with as little work for the guest as can be: CPU use is as of the last glance, if there was one.

        Raises:
            As `sample`; but a sandbox is not asked for its state before.
        """
        return await self._sample(row, is_quick=True)

    async def _sample(self, row: Registration, *, is_quick: bool = False) -> Usage:
        if speaks_v1(row):
            raise Unsupported(
                f"the image of `{row.name}` has an old guest, which tells nothing of what it uses",
                hint="rebuild the image",
            )
        async with self._guests.connect(row) as guest:
            told = await (guest.metrics.glance() if is_quick else guest.metrics.sample())
            usage = await with_right_clock(guest, told)
        await asyncio.to_thread(self._samples.add, row.context, row.id, usage)
        await self._troubles.note_usage(row, usage)
        return usage

    async def _ask(self, sandbox: Sandbox, row: Registration, jobs: Sequence[Job]) -> SandboxUsage:
        if not await self._looks.may(row, jobs):
            seen = await self.last_hour(row)
            age = f"as of {short_age(datetime.now(UTC) - seen[-1].at)} ago, " if seen else ""
            return SandboxUsage(sandbox, seen[-1] if seen else None, age + RESTING)
        try:
            async with asyncio.timeout(_PATIENCE_S):
                return SandboxUsage(sandbox, await self._sample(row))
        except TimeoutError:
            return SandboxUsage(sandbox, why=f"no answer in {_PATIENCE_S:.0f} s")
        except SbxError as exc:
            return SandboxUsage(sandbox, why=exc.message)
