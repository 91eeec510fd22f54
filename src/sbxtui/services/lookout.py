"""Looking for trouble while somebody wants to hear of it.

One face of a home looks, whichever came first; the others hear through the store of what it finds. A sandbox is asked
while a job runs in it and once after it woke, but no longer than half an idle window after that began: a job that
nobody keeps awake is suspended, looked at or not. Whoever keeps one awake looks at it, too.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import BinaryIO

from sbxtui.core.errors import SbxError
from sbxtui.core.jobs import Job
from sbxtui.core.life import Lived
from sbxtui.core.model import Context, Registration, Sandbox, SandboxState
from sbxtui.core.usage import unnoticed_s
from sbxtui.home import Home, private_dir
from sbxtui.services.inventory import Inventories
from sbxtui.services.jobs import Jobs
from sbxtui.services.metrics import Metrics
from sbxtui.services.planes import ControlPlanes
from sbxtui.services.troubles import Troubles
from sbxtui.store.locks import try_lock
from sbxtui.store.registry import Registry

_EVERY_S = 10.0
_EVERY_MIN_S = 0.5
_AT_ONCE = 4
_PATIENCE_S = 15.0
_JUST_WOKEN_S = 30.0


class Lookout:
    """Looks at the sandboxes of one context; what it finds, `Troubles` writes down."""

    def __init__(
        self,
        home: Home,
        context: Context,
        planes: ControlPlanes,
        registry: Registry,
        inventories: Inventories,
        jobs: Jobs,
        metrics: Metrics,
        troubles: Troubles,
    ) -> None:
        self._home = home
        self._context = context
        self._planes = planes
        self._registry = registry
        self._inventories = inventories
        self._jobs = jobs
        self._metrics = metrics
        self._troubles = troubles
        self._greeted: dict[str, datetime] = {}

    async def keep(self) -> None:
        """Look again and again, until cancelled; while another face does, wait for its end."""
        turn: BinaryIO | None = None
        try:
            while True:
                turn = turn or await asyncio.to_thread(self._take_turn)
                if turn is not None:
                    with contextlib.suppress(SbxError):
                        await self.look()
                await asyncio.sleep(self._every_s())
        finally:
            if turn is not None:
                turn.close()

    def _every_s(self) -> float:
        return max(_EVERY_MIN_S, _EVERY_S / self._planes.time_scale(self._context))

    async def look(self) -> None:
        """Look once at all that may be looked at; one that does not answer is passed over."""
        if not self._planes.serves(self._context):
            return
        inventory = await self._inventories.recent(self._context, within_s=self._every_s())
        jobs = await self._jobs.open_ones(self._context.name)
        running = [one for one in inventory.sandboxes if one.state is SandboxState.RUNNING and one.is_tracked]
        scale = self._planes.time_scale(self._context) if running else 1.0
        due = {one.id for one in running if self._is_due(one, jobs, scale)}
        if not due:
            return
        # Who fell asleep a moment ago would be woken.
        inventory = await self._inventories.live(self._context)
        due &= {one.id for one in inventory.sandboxes if one.state is SandboxState.RUNNING}
        rows = await asyncio.to_thread(self._registry.list, self._context.name)
        gate = asyncio.Semaphore(_AT_ONCE)

        async def one(row: Registration) -> None:
            async with gate:
                with contextlib.suppress(SbxError, TimeoutError):
                    async with asyncio.timeout(_PATIENCE_S):
                        await self.look_at(row)

        await asyncio.gather(*(one(row) for row in rows if row.id in due))

    async def look_at(self, row: Registration) -> list[Job]:
        """Look at one sandbox, which is traffic; returns its jobs.

        Raises:
            SbxError: It does not tell its jobs.
        """
        jobs = await self._jobs.list(row)
        await self._troubles.note_jobs(row, jobs)
        with contextlib.suppress(SbxError):
            await self._metrics.glance(row)
        return jobs

    def _is_due(self, sandbox: Sandbox, jobs: Sequence[Job], scale: float) -> bool:
        now, span_s = datetime.now(UTC), unnoticed_s(sandbox.idle, scale)
        begun = [job.created_at for job in jobs if job.sandbox_id == sandbox.id]
        is_busy = bool(begun) and (now - max(begun)).total_seconds() < span_s
        return not sandbox.has_old_guest and (is_busy or self._has_just_woken(sandbox, now, span_s))

    def _has_just_woken(self, sandbox: Sandbox, now: datetime, span_s: float) -> bool:
        """Whether it was seen to wake a moment ago, and has not been looked at since."""
        lived = Lived.of(sandbox.facts, sandbox.created_at)
        age_s = (now - lived.since).total_seconds()
        if not lived.resumes or age_s > min(_JUST_WOKEN_S, span_s) or self._greeted.get(sandbox.id) == lived.since:
            return False
        self._greeted[sandbox.id] = lived.since
        return True

    def _take_turn(self) -> BinaryIO | None:
        try:
            folder = private_dir(self._home.state_dir / "lookout")
            return try_lock(folder / f"{self._context.name}.lock")
        except (OSError, SbxError):
            return None
