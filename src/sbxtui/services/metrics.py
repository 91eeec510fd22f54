"""What sandboxes use, without keeping any of them awake for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from sbxtui.core.errors import Conflict, SbxError, Unsupported
from sbxtui.core.jobs import Job
from sbxtui.core.model import Context, Registration, Sandbox, SandboxState
from sbxtui.core.usage import Usage, may_look
from sbxtui.services.guests import Guests, speaks_v1
from sbxtui.services.inventory import Inventories, Inventory
from sbxtui.services.jobs import Jobs
from sbxtui.services.planes import ControlPlanes
from sbxtui.services.troubles import Troubles
from sbxtui.store.registry import Registry
from sbxtui.store.samples import Samples

_AT_ONCE = 8
_PATIENCE_S = 10.0
RESTING = "idle: asking would keep it awake"


@dataclass(frozen=True, slots=True)
class SandboxUsage:
    """A sandbox and what it uses; without `usage`, `why` says why nothing is known."""

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
    ) -> None:
        self._context = context
        self._planes = planes
        self._inventories = inventories
        self._registry = registry
        self._jobs = jobs
        self._guests = guests
        self._samples = samples
        self._troubles = troubles

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
        scale = self._planes.time_scale(self._context)
        while True:
            jobs = await self._jobs.known(row.context, row.id)
            yield await self.sample(row) if may_look(row.request.idle, jobs, datetime.now(UTC), scale=scale) else None
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
        scale = self._planes.time_scale(self._context) if tracked else 1.0
        gate = asyncio.Semaphore(_AT_ONCE)

        async def one(sandbox: Sandbox) -> SandboxUsage:
            if sandbox.state is not SandboxState.RUNNING:
                return SandboxUsage(sandbox, why=sandbox.state.lower())
            async with gate:
                own = [job for job in noted if job.sandbox_id == sandbox.id]
                return await self._ask(sandbox, by_id[sandbox.id], own, scale)

        return inventory, list(await asyncio.gather(*map(one, tracked)))

    async def _sample(self, row: Registration) -> Usage:
        if speaks_v1(row):
            raise Unsupported(
                f"the image of `{row.name}` has an old guest, which tells nothing of what it uses",
                hint="rebuild the image",
            )
        async with self._guests.connect(row) as guest:
            usage = await guest.metrics.sample()
        await asyncio.to_thread(self._samples.add, row.context, row.id, usage)
        await self._troubles.note_usage(row, usage)
        return usage

    async def _ask(self, sandbox: Sandbox, row: Registration, jobs: Sequence[Job], scale: float) -> SandboxUsage:
        if not may_look(row.request.idle, jobs, datetime.now(UTC), scale=scale):
            return SandboxUsage(sandbox, why=RESTING)
        try:
            async with asyncio.timeout(_PATIENCE_S):
                return SandboxUsage(sandbox, await self._sample(row))
        except TimeoutError:
            return SandboxUsage(sandbox, why=f"no answer in {_PATIENCE_S:.0f} s")
        except SbxError as exc:
            return SandboxUsage(sandbox, why=exc.message)
