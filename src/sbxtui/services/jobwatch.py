"""Following the jobs of one sandbox as they come and go.

Watching is not work: the guest is asked when a person asks, and on while something runs there and asking keeps it no
more awake. What other faces begin is heard of through the store.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncGenerator, Mapping

from sbxtui.core.jobs import Job, JobState
from sbxtui.core.model import Registration, SandboxState
from sbxtui.core.usage import RESTING
from sbxtui.home import Home
from sbxtui.services.joblist import JobListing, JobLists
from sbxtui.services.jobs import Jobs
from sbxtui.services.looks import Looks
from sbxtui.services.troubles import Troubles
from sbxtui.store.doorbell import LOOKING_POLL_S, Listener
from sbxtui.store.jobs import is_told

_EVERY_S = 2.0
# A burst of changes in the store is one look.
_SHORTEST_PAUSE_S = 0.3


class JobWatch:
    """Looks at the jobs of a sandbox again and again, every `every_s` while something runs there."""

    def __init__(
        self, home: Home, lists: JobLists, jobs: Jobs, troubles: Troubles, looks: Looks, *, every_s: float = _EVERY_S
    ) -> None:
        self._home = home
        self._lists = lists
        self._jobs = jobs
        self._troubles = troubles
        self._looks = looks
        self._every_s = every_s

    async def follow(
        self, row: Registration, state: SandboxState, *, is_asked: bool
    ) -> AsyncGenerator[JobListing, None]:
        """The jobs of a sandbox as they are now, then at each change; ends only when closed.

        Args:
            row: Which sandbox.
            state: As the control plane told it last; one that does not run is never asked.
            is_asked: Whether a person asks: then its guest tells also what nobody here noted.
        """
        told: dict[str, Job] = {}
        has_looked = False
        loop = asyncio.get_running_loop()
        async with Listener(self._home, poll_s=LOOKING_POLL_S) as bell:
            while True:
                ours, due_s = await self._ours(row), loop.time() + self._every_s
                listing = await self._look(row, state, told if has_looked else None, is_asked=is_asked)
                is_asked, has_looked = False, True
                jobs = tuple(_as_before(job, told.get(job.id)) for job in listing.jobs)
                told = {job.id: job for job in jobs}
                if not listing.problems:
                    # What could not be asked is not silent.
                    await self._troubles.note_jobs(row, jobs)
                yield JobListing(jobs, listing.problems)
                is_busy = any(job.state in (JobState.RUNNING, JobState.STARTING) for job in listing.jobs)
                await asyncio.sleep(_SHORTEST_PAUSE_S)
                await bell.wait(self._every_s if is_busy else None)
                # What a look notes is no reason for the next: guests would have their lies looked at without a pause.
                while (left_s := due_s - loop.time()) > 0 and await self._ours(row) == ours:
                    await bell.wait(left_s)

    async def _ours(self, row: Registration) -> frozenset[tuple[str, bool]]:
        """The jobs somebody here began, and whether they are over."""
        noted = await self._jobs.known(row.context, row.id)
        return frozenset((job.id, job.is_over) for job in noted if not is_told(job))

    async def _look(
        self, row: Registration, state: SandboxState, told: Mapping[str, Job] | None, *, is_asked: bool
    ) -> JobListing:
        noted = await self._jobs.known(row.context, row.id)
        # What began since the last look may have ended by now: only its guest can tell all of it.
        is_new = told is not None and any(job.id not in told for job in noted)
        if is_asked or is_new or state is not SandboxState.RUNNING:
            return await self._lists.of(row, state)
        if all(job.is_over for job in noted):
            return JobListing(tuple(noted))
        if await self._looks.may(row, noted):
            return await self._lists.of(row, state)
        return JobListing(tuple(noted), (f"`{row.name}` is {RESTING}; its jobs are as last known",))


def _as_before(job: Job, before: Job | None) -> Job:
    """A job with what its guest told of it before: the index knows less."""
    if before is None:
        return job
    return dataclasses.replace(
        job,
        actor=before.actor,
        command=before.command,
        shell=before.shell or job.shell,
        cursor=max(before.cursor, job.cursor),
    )
