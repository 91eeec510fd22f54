"""Jobs of several sandboxes at once, without waking any of them."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping, Sequence

from sbxtui.core.errors import NotFound, SbxError, TimedOut
from sbxtui.core.jobs import Job, JobState
from sbxtui.core.model import Context, Registration, SandboxId, SandboxState
from sbxtui.core.values import dataclass
from sbxtui.services.guests import speaks_v1
from sbxtui.services.inventory import Inventories
from sbxtui.services.jobs import Jobs
from sbxtui.store.jobs import pick
from sbxtui.store.registry import Registry

_AT_ONCE = 8
# One that tells slowly is not to keep the jobs of all others from being shown.
_ANSWER_S = 15.0


@dataclass(frozen=True, slots=True)
class JobListing:
    """Jobs, oldest first, and what could not be asked, in words; jobs of that are as last known or UNKNOWN."""

    jobs: tuple[Job, ...]
    problems: tuple[str, ...] = ()


class JobLists:
    """Lists jobs of a context; each sandbox has `answer_s` to tell its own."""

    def __init__(
        self,
        context: Context,
        inventories: Inventories,
        registry: Registry,
        jobs: Jobs,
        *,
        answer_s: float = _ANSWER_S,
    ) -> None:
        self._context = context
        self._inventories = inventories
        self._registry = registry
        self._jobs = jobs
        self._answer_s = answer_s

    async def all(self) -> JobListing:
        """The jobs of every sandbox of the context.

        Only guests of running sandboxes in which a job may still run are asked: listing is not work, so it neither
        wakes a sandbox nor keeps an idle one awake.
        """
        inventory, noted, rows = await asyncio.gather(
            self._inventories.live(self._context),
            self._jobs.known(self._context.name),
            asyncio.to_thread(self._registry.list, self._context.name),
        )
        states = {sandbox.id: sandbox.state for sandbox in inventory.sandboxes}
        busy = {job.sandbox_id for job in noted if not job.is_over}
        asked = [row for row in rows if row.id in busy]
        found, problems = await self._ask(asked, {row.id: states.get(row.id, SandboxState.UNKNOWN) for row in asked})
        rest = [job for job in noted if job.sandbox_id not in busy]
        return JobListing(_sorted([*rest, *found]), tuple(problems))

    async def of(self, row: Registration, state: SandboxState) -> JobListing:
        """The jobs of one sandbox; its guest is asked if `state` says that it runs."""
        found, problems = await self._ask([row], {row.id: state})
        return JobListing(_sorted(found), tuple(problems))

    async def find(self, reference: str, row: Registration | None = None) -> Job:
        """The job an id or a unique prefix of one means, in any sandbox of the context or in that of `row`.

        What nobody noted here is looked for in the running sandboxes: another machine may have begun it.

        Raises:
            NotFound: There is none. AmbiguousReference: Several fit. TimedOut: The sandbox of `row` does not tell.
        """
        noted = await self._jobs.known(self._context.name, row.id if row else None)
        try:
            return pick(noted, reference)
        except NotFound:
            if not reference:
                raise
        if row is not None:
            return pick(await self._told(row), reference)
        inventory = await self._inventories.live(self._context)
        states = {sandbox.id: sandbox.state for sandbox in inventory.sandboxes}
        rows = await asyncio.to_thread(self._registry.list, self._context.name)
        running = [row for row in rows if states.get(row.id) is SandboxState.RUNNING]
        found, _ = await self._ask(running, states)
        return pick(found, reference)

    async def _ask(
        self, rows: Sequence[Registration], states: Mapping[SandboxId, SandboxState]
    ) -> tuple[list[Job], list[str]]:
        gate = asyncio.Semaphore(_AT_ONCE)

        async def one(row: Registration) -> tuple[list[Job], str]:
            async with gate:
                return await self._jobs_of(row, states[row.id])

        answers = await asyncio.gather(*(one(row) for row in rows))
        return [job for jobs, _ in answers for job in jobs], [words for _, words in answers if words]

    async def _jobs_of(self, row: Registration, state: SandboxState) -> tuple[list[Job], str]:
        if speaks_v1(row):
            return [], f"`{row.name}` has an old guest that keeps no jobs"
        if state is not SandboxState.RUNNING:
            return await self._unasked(row), f"`{row.name}` is {state.value.lower()}: its jobs are as last known"
        try:
            return await self._told(row), ""
        except SbxError as exc:
            return await self._unasked(row), f"`{row.name}` could not be asked: {exc.message}"

    async def _told(self, row: Registration) -> list[Job]:
        try:
            async with asyncio.timeout(self._answer_s):
                return await self._jobs.list(row)
        except TimeoutError as exc:
            raise TimedOut(f"`{row.name}` did not tell its jobs within {self._answer_s:g} s", hint="try again") from exc

    async def _unasked(self, row: Registration) -> list[Job]:
        noted = await self._jobs.known(row.context, row.id)
        return [job if job.is_over else dataclasses.replace(job, state=JobState.UNKNOWN) for job in noted]


def _sorted(jobs: Sequence[Job]) -> tuple[Job, ...]:
    return tuple(sorted(jobs, key=lambda job: (job.created_at, job.id)))
