"""What is kept of jobs as they go by: rows of the index and events. Nothing here may fail a command."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Sequence

from sbxtui.core.errors import StoreError
from sbxtui.core.jobs import Job, JobExit
from sbxtui.core.model import ExecResult, Registration
from sbxtui.store.jobs import JobIndex

log = logging.getLogger(__name__)


class JobNotes:
    """Writes to the index, as one actor; a store that cannot be written is a line in the log."""

    def __init__(self, index: JobIndex, actor: str) -> None:
        self._index = index
        self._actor = actor

    async def started(self, job: Job) -> None:
        """We began a job, whoever its guest says did."""
        await self._write(lambda: self._index.started(dataclasses.replace(job, actor=self._actor)))

    async def ended(self, job: Job, ending: JobExit) -> None:
        """A job was seen to have ended."""
        await self._write(lambda: self._index.ended(job, ending, actor=self._actor))

    async def caught_up(self, told: Sequence[Job], gone: Sequence[Job]) -> None:
        """A guest told of jobs that others began, or that ended unseen, and knows some no more."""
        if told or gone:
            await self._write(lambda: self._index.caught_up(told, gone, actor=self._actor))

    async def forgotten(self, job: Job) -> None:
        """A job was ended and deleted."""
        await self._write(lambda: self._index.forget(job, actor=self._actor))

    async def event(self, job: Job, kind: str, **data: object) -> None:
        """Something was done to a job: `job.signal`, `job.input`."""
        await self._write(lambda: self._index.note(job, kind, actor=self._actor, **data))

    async def _write(self, act: Callable[[], None]) -> None:
        try:
            await asyncio.to_thread(act)
        except StoreError as exc:
            log.warning("the index of jobs could not be written: %s", exc.message)


class NotedRun:
    """One command that is run to its end: noted beside its output, so that neither waits for the other."""

    def __init__(self, notes: JobNotes, row: Registration, on_started: Callable[[Job], None]) -> None:
        self._notes = notes
        self._row = row
        self._on_started = on_started
        self._job: Job | None = None
        self._noting: asyncio.Task[None] | None = None

    def started(self, job: Job) -> None:
        """It runs."""
        self._job = placed(job, self._row)
        self._noting = asyncio.ensure_future(self._notes.started(self._job))
        self._on_started(self._job)

    async def ended(self, result: ExecResult) -> None:
        """It ended."""
        if self._job is None or self._noting is None:
            return
        await self._noting
        await self._notes.ended(self._job, exit_of(result))

    async def cancelled(self) -> None:
        """It was ended and deleted with its caller."""
        if self._job is not None and self._noting is not None:
            await self._noting
            await self._notes.forgotten(self._job)


def exit_of(result: ExecResult) -> JobExit:
    """How a finished command ended."""
    code = None if result.signal else result.exit_code
    return JobExit(code, result.signal, result.timed_out, result.oom, result.lingering, result.duration_s)


def placed(job: Job, row: Registration) -> Job:
    """A job as its guest tells it, in its sandbox."""
    return dataclasses.replace(job, context=row.context, sandbox_id=row.id, sandbox=row.name)
