"""Commands in sandboxes: run to the end, or begun, watched, typed into, signalled and come back to.

Guests own their jobs; the store's index says where a job is and what became of it. A face may die at any moment: the
job goes on, and any other face takes it up by its id.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import field

from sbxtui.core.errors import Conflict, ConnectionLost, NotFound, Unsupported
from sbxtui.core.jobs import Job, JobExit, JobPiece, TerminalSize
from sbxtui.core.model import ExecResult, Registration
from sbxtui.core.values import dataclass
from sbxtui.guest.client import GuestClient
from sbxtui.guest.jobs import JobRequest
from sbxtui.services.attachment import Attachment
from sbxtui.services.guests import Guests, speaks_v1
from sbxtui.services.jobnotes import JobNotes, NotedRun, placed
from sbxtui.services.jobs_v1 import exec_v1
from sbxtui.store.jobs import JobIndex, is_told
from sbxtui.store.registry import Registry

_HARD = frozenset({"KILL", "9"})
# As many of the jobs a guest tells of are noted at a look; one may tell of any number.
_CAUGHT_UP = 256

OnOutput = Callable[[str, bytes], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Command:
    """A command to run: an argument vector, or one shell line. `timeout_s` counts running time; None is no limit.

    With `terminal` it runs on one: its output is one stream, as a terminal shows it. `label` is shown in listings.
    """

    argv: Sequence[str] | str
    cwd: str = ""
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout_s: float | None = None
    user: str = ""
    terminal: TerminalSize | None = None
    label: str = ""


class Jobs:
    """Jobs in sandboxes of one context; `actor` is who begins and ends them, as events show it."""

    def __init__(self, guests: Guests, registry: Registry, index: JobIndex, actor: str) -> None:
        self._guests = guests
        self._registry = registry
        self._index = index
        self._actor = actor
        self.notes = JobNotes(index, actor)

    async def exec(
        self,
        row: Registration,
        command: Command,
        *,
        stdin: bytes | AsyncIterator[bytes] | None = None,
        on_output: OnOutput | None = None,
        on_started: Callable[[Job], None] = lambda job: None,
        ends_with_caller: bool = False,
    ) -> ExecResult:
        """Run a command to its end.

        Args:
            row: Where.
            command: What.
            stdin: Bytes for its standard input; None gives it an empty one.
            on_output: Called with ("out", "err" or "pty", bytes) as output arrives; then the result carries none.
            on_started: Called with the job once it runs; never for an image with an old guest, which knows no jobs.
            ends_with_caller: Losing this process ends the command too; else it goes on. Cancelling ends it always.

        Raises:
            GuestUnreachable: The guest cannot be reached. Conflict: The sandbox is suspended.
            ConnectionLost: No way back for 30 s; the job goes on, and the hint says how to come back to it.
        """
        if speaks_v1(row):
            async with self._guests.connect(row) as guest:
                return await exec_v1(guest, command, stdin, on_output)
        watch = NotedRun(self.notes, row, on_started)
        try:
            async with self._guests.connect(row) as guest:
                result = await guest.exec(
                    command.argv,
                    cwd=command.cwd,
                    env=_env_of(row, command),
                    stdin=stdin,
                    timeout_s=command.timeout_s,
                    user=command.user,
                    actor=self._actor,
                    label=command.label,
                    terminal=command.terminal,
                    on_output=on_output,
                    on_started=watch.started,
                    ends_with_caller=ends_with_caller,
                )
        except ConnectionLost as exc:
            raise reattachable(exc, row.name) from exc
        except (asyncio.CancelledError, OSError):
            # Cancelled, or nobody takes its output any more: it was ended and deleted with its caller.
            await asyncio.shield(watch.cancelled())
            raise
        await watch.ended(result)
        return result

    async def start(self, row: Registration, command: Command, *, has_stdin: bool = False) -> Job:
        """Begin a job and leave it to itself.

        Args:
            row: Where.
            command: What; with `terminal` it can be typed into whatever `has_stdin` says.
            has_stdin: Give it an input that somebody may write to later.

        Raises:
            SbxError: It did not begin; as `exec`. ConnectionLost: It may have; the hint says how to come to it.
        """
        _check_jobs(row)
        try:
            async with self._guests.connect(row) as guest:
                return await self._begin(guest, row, command, has_stdin=has_stdin, holds=False)
        except ConnectionLost as exc:
            raise reattachable(exc, row.name) from exc

    @asynccontextmanager
    async def begin(self, row: Registration, command: Command, *, has_stdin: bool = True) -> AsyncIterator[Attachment]:
        """Begin a job and take part in it at once, over one connection; leaving never ends it.

        Until its first reader came, and for 30 s without one, it waits instead of losing output.

        Raises:
            SbxError: It did not begin; as `exec`. ConnectionLost: No way back for 30 s; it goes on.
        """
        _check_jobs(row)
        try:
            async with self._guests.connect(row) as guest:
                job = await self._begin(guest, row, command, has_stdin=has_stdin, holds=True)
                yield Attachment(guest, job, self.notes)
        except ConnectionLost as exc:
            raise reattachable(exc, row.name) from exc

    async def _begin(
        self, guest: GuestClient, row: Registration, command: Command, *, has_stdin: bool, holds: bool
    ) -> Job:
        request = JobRequest(
            command.argv,
            command.cwd,
            _env_of(row, command),
            command.timeout_s,
            command.user,
            self._actor,
            label=command.label,
            terminal=command.terminal,
            has_stdin=has_stdin and command.terminal is None,
            holds=holds,
        )
        job = placed(await guest.jobs.start(request), row)
        await self.notes.started(job)
        if job.exit is not None:
            await self.notes.ended(job, job.exit)
        return job

    async def known(self, context: str, sandbox_id: str | None = None) -> list[Job]:
        """The jobs the index knows, oldest first; asks nobody. What runs is as of when it was last looked at."""
        return await asyncio.to_thread(self._index.list, context, sandbox_id)

    async def is_noted(self, job: Job, kind: str) -> bool:
        """Whether something was done to a job by somebody here, as events tell it: `job.signal`."""
        return await asyncio.to_thread(self._index.is_noted, job, kind)

    async def open_ones(self, context: str) -> list[Job]:
        """The jobs of a context that nobody here saw end; asks nobody."""
        return await asyncio.to_thread(lambda: self._index.list(context, only_open=True))

    async def list(self, row: Registration) -> list[Job]:
        """Every job of a sandbox, oldest first: what its guest says, and what the index knows beyond that.

        Jobs the guest knows no more are left out unless somebody here saw their end.
        """
        _check_jobs(row)
        noted_before = {job.id for job in await self.known(row.context, row.id)}
        async with self._guests.connect(row) as guest:
            told = {job.id: placed(job, row) for job in await guest.jobs.list()}
            noted = await self.known(row.context, row.id)
            missing = [job for job in noted if job.id not in told and not job.is_over]
            # Those begun here since the guest told of all. By the word of guests there may be any number.
            late = [job for job in missing if job.id not in noted_before and not is_told(job)]
            told.update({seen.id: seen for job in late if (seen := await self._late(guest, job, row)) is not None})
        lost = [job for job in missing if job.id not in told and (job.id in noted_before or job in late)]
        await self._catch_up({job.id: job for job in noted}, told, lost)
        over = [job for job in noted if job.id not in told and job.is_over]
        return sorted([*over, *told.values()], key=lambda job: job.created_at)

    async def _late(self, guest: GuestClient, job: Job, row: Registration) -> Job | None:
        """A job that may have begun since its guest told of all; None if it knows it no more."""
        try:
            return placed(await guest.jobs.get(job.id), row)
        except NotFound:
            return None

    async def look(self, job: Job) -> Job:
        """The job as its guest tells it now.

        Raises:
            NotFound: Its guest knows it no more. Conflict: The sandbox was started anew since, or is suspended.
        """
        async with self.connect(job) as guest:
            return await self._seen(job, await guest.jobs.get(job.id))

    async def follow(self, job: Job, *, cursor: int = 0, until_quiet: bool = False) -> AsyncGenerator[JobPiece, None]:
        """A job's log from `cursor` on, its exit last. Close it to stop; the job never notices.

        Args:
            job: Which.
            cursor: An offset in bytes; what is no longer kept comes as one gap.
            until_quiet: End at the log's present end instead of waiting for more.

        Raises:
            NotFound: The guest knows it no more. ConnectionLost: No way back for 30 s.
        """
        async with self.connect(job) as guest:
            pieces = guest.jobs.follow(job.id, cursor=cursor, until_quiet=until_quiet)
            async with aclosing(pieces):
                async for piece in pieces:
                    if isinstance(piece, JobExit):
                        await self.notes.ended(job, piece)
                    yield piece

    @asynccontextmanager
    async def attach(self, job: Job) -> AsyncIterator[Attachment]:
        """Take up a job that anybody began; leaving it never ends it.

        Raises:
            NotFound: Its guest knows it no more. ConnectionLost: No way back for 30 s; it goes on.
        """
        async with self.connect(job) as guest:
            seen = await self._seen(job, await guest.jobs.get(job.id))
            yield Attachment(guest, seen, self.notes)

    async def signal(self, job: Job, signal: str = "TERM") -> Job:
        """Send a signal to the job's process group; KILL to everything it ever started.

        Raises:
            Conflict: It has ended. NotFound: Its guest knows it no more. UsageError: There is no such signal.
        """
        async with self.connect(job) as guest:
            seen = await guest.jobs.signal(job.id, signal, to="tree" if signal in _HARD else "group")
        return await self._signalled(job, seen, signal)

    async def end(self, job: Job) -> Job:
        """Begin to end a job: TERM to its process group, and after a grace period KILL to everything it ever started.

        Raises:
            As `signal`. Unsupported: Its image's guest is too old to do that.
        """
        async with self.connect(job) as guest:
            seen = await guest.jobs.end(job.id)
        return await self._signalled(job, seen, "TERM")

    async def _signalled(self, job: Job, told: Job, signal: str) -> Job:
        # Of a job that has ended something may go on, and was signalled.
        if told.exit is not None and not told.exit.lingering:
            await self.notes.ended(job, told.exit)
            raise Conflict(
                f"job `{job.id}` in `{job.sandbox}` has ended with exit code {told.exit.exit_code}; nothing was sent"
            )
        await self.notes.event(job, "job.signal", signal=signal)
        return await self._seen(job, told)

    async def write(self, job: Job, data: bytes, *, ends: bool = False) -> None:
        """Write to a job's input, behind what anybody wrote before; returns when it has read all of it, or has ended.

        Args:
            job: One that was begun with an input, or on a terminal.
            data: The bytes.
            ends: Whether its input ends with them; a terminal gets what people type for that.

        Raises:
            Conflict: It has no input, or somebody else writes to it now. NotFound: Its guest knows it no more.
        """
        async with self.connect(job) as guest:
            await guest.jobs.write(await guest.jobs.get(job.id), data, ends=ends)
        await self.notes.event(job, "job.input")

    async def resize(self, job: Job, size: TerminalSize) -> None:
        """Give the job's terminal another size; every watcher sees what that changes."""
        async with self.connect(job) as guest:
            await guest.jobs.resize(job.id, size.cols, size.rows)

    async def remove(self, job: Job) -> None:
        """End a job with everything it started and forget it, its output too. Works on what is gone."""
        async with self.connect(job) as guest:
            with contextlib.suppress(NotFound):
                await guest.jobs.delete(job.id)
        await self.notes.forgotten(job)

    @asynccontextmanager
    async def connect(self, job: Job) -> AsyncIterator[GuestClient]:
        """The guest of a job.

        Raises:
            SandboxNotFound: Its sandbox has no name here any more.
            ConnectionLost: With a hint how to come back.
        """
        row = await asyncio.to_thread(self._registry.find, job.context, job.sandbox_id)
        try:
            async with self._guests.connect(row) as guest:
                yield guest
        except ConnectionLost as exc:
            raise reattachable(exc, row.name) from exc

    async def _catch_up(self, noted: Mapping[str, Job], told: Mapping[str, Job], lost: Sequence[Job]) -> None:
        """Note what others began or what ended unseen: a client may have died before it wrote, or lives elsewhere."""
        news = []
        for job in list(told.values())[-_CAUGHT_UP:]:
            before = noted.get(job.id)
            if before is None or (job.exit is not None and not before.is_over):
                news.append(job)
        await self.notes.caught_up(news, lost)

    async def _seen(self, job: Job, told: Job) -> Job:
        seen = dataclasses.replace(
            told, context=job.context, sandbox_id=job.sandbox_id, sandbox=job.sandbox, boot_id=job.boot_id
        )
        if seen.exit is not None and not job.is_over:
            await self.notes.ended(seen, seen.exit)
        return seen


def reattachable(lost: ConnectionLost, sandbox: str) -> ConnectionLost:
    """The same loss with the command that takes the job up again, from the byte where it was lost."""
    job_id, cursor = lost.details.get("job"), lost.details.get("cursor")
    start = f" --from {cursor}" if cursor else ""
    return ConnectionLost(
        lost.message, hint=f"come back to it with `sbx attach {sandbox} {job_id}{start}`", details=lost.details
    )


def _env_of(row: Registration, command: Command) -> dict[str, str]:
    """A command's own variables, and in which sandbox it runs: the guest knows only what it was called at first."""
    return {"SBX_SANDBOX": row.name, **command.env}


def _check_jobs(row: Registration) -> None:
    if speaks_v1(row):
        raise Unsupported(
            f"the image of `{row.name}` has an old guest that keeps no jobs",
            hint="`sbx exec` works; rebuild the image for the rest",
        )
