"""What the sandboxes of a context cost, and what becomes of each by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime

from sbxtui.core.jobs import Job
from sbxtui.core.life import Bill, bill_of, spent_usd
from sbxtui.core.model import Context, Sandbox
from sbxtui.services.planes import ControlPlanes
from sbxtui.store.jobs import JobIndex


class Costs:
    """Bills, drawn up from what is known here: nobody is asked."""

    def __init__(self, planes: ControlPlanes, index: JobIndex) -> None:
        self._planes = planes
        self._index = index

    async def of(self, context: Context, sandboxes: Sequence[Sandbox]) -> list[Bill]:
        """A bill for each sandbox, in order."""
        jobs = await asyncio.to_thread(self._index.list, context.name) if sandboxes else []
        return self.of_known(context, sandboxes, jobs)

    def of_known(self, context: Context, sandboxes: Sequence[Sandbox], jobs: Sequence[Job]) -> list[Bill]:
        """The same with the jobs at hand."""
        now, scale = datetime.now(UTC), self._planes.time_scale(context)
        own: dict[str, list[Job]] = {}
        for job in jobs:
            own.setdefault(job.sandbox_id, []).append(job)
        return [bill_of(context, one, own.get(one.id, ()), now, scale=scale) for one in sandboxes]

    def spent_usd(self, context: Context, sandbox: Sandbox) -> float | None:
        """See `life.spent_usd`."""
        return spent_usd(context, sandbox, datetime.now(UTC), scale=self._planes.time_scale(context))
