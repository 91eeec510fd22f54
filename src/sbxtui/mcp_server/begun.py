"""Commands that were begun here: listened to until they end, also when their call has had its reply by then."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from contextlib import suppress

from sbxtui.core.jobs import Channel, Job
from sbxtui.core.model import ExecResult, Registration
from sbxtui.mcp_server.call import Call
from sbxtui.mcp_server.clip import Clip
from sbxtui.mcp_server.watching import Watched, end, telling
from sbxtui.services.guests import speaks_v1
from sbxtui.services.jobnotes import exit_of
from sbxtui.services.jobs import Command
from sbxtui.services.launch import CreateOptions

# So long the sandbox of a command that ended waits for somebody to ask how.
LINGER_S = 300.0


class Begun(ABC):
    """A command. Cancelling `wait` ends it; what it said is in `seen`."""

    def __init__(self, call: Call, command: Command, stdin: bytes | None, *, keep_bytes: int) -> None:
        self.seen = Watched(Clip(keep_bytes), Clip(keep_bytes))
        self._call = call
        self._command = command
        self._stdin = stdin
        self._runs = asyncio.Event()
        self._over = asyncio.Event()
        self._is_left = False
        self._task = call.follow(self._run())

    async def wait(self, wait_s: float) -> None:
        """Until it has ended, or `wait_s` have passed and it runs.

        Raises:
            SbxError: It could not be begun, or the way to it was lost.
        """
        try:
            async with telling(self._call, self.seen):
                await self._until(self._over, wait_s)
                await self._until(self._runs)
        except asyncio.CancelledError:
            self._cut()
            raise
        self._is_left = not self._over.is_set()
        if not self._is_left or self._task.done():
            await self._task

    @abstractmethod
    async def _run(self) -> None:
        """Run it to its end."""

    @abstractmethod
    def _cut(self) -> None:
        """Nobody wants it any more."""

    async def _until(self, event: asyncio.Event, wait_s: float | None = None) -> None:
        """Until something is so, or the command will never be."""
        waiting = asyncio.ensure_future(event.wait())
        try:
            await asyncio.wait((self._task, waiting), timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()

    async def _take(self, channel: str, data: bytes) -> None:
        self.seen.said(data, is_error=channel == Channel.ERR)

    def _started(self, job: Job) -> None:
        self.seen.job = job
        self._runs.set()

    def _ended(self, result: ExecResult) -> None:
        self.seen.exit = exit_of(result)
        self._over.set()


class Running(Begun):
    """A command in a sandbox. The end of this server does not end one that has become a session."""

    def __init__(
        self, call: Call, row: Registration, command: Command, stdin: bytes | None, *, keep_bytes: int
    ) -> None:
        self._row = row
        super().__init__(call, command, stdin, keep_bytes=keep_bytes)

    async def _run(self) -> None:
        jobs = self._call.services.jobs
        if speaks_v1(self._row):
            self._ended(await jobs.exec(self._row, self._command, stdin=self._stdin, on_output=self._take))
            return
        async with jobs.begin(self._row, self._command, has_stdin=self._stdin is not None) as attachment:
            self._started(attachment.job)
            self._ended(await attachment.run(stdin=self._stdin, on_output=self._take))

    def _cut(self) -> None:
        self._call.later(self._end())

    async def _end(self) -> None:
        await self._until(self._runs)
        if self.seen.job is None:
            self._task.cancel()
        else:
            await end(self._call, self.seen.job)


class RunningOnce(Begun):
    """A command in a sandbox made for it, which goes when it ends, or when that was told to who left it meanwhile.

    The end of this server ends both.
    """

    def __init__(
        self, call: Call, options: CreateOptions, command: Command, stdin: bytes | None, *, keep_bytes: int
    ) -> None:
        self._options = options
        super().__init__(call, command, stdin, keep_bytes=keep_bytes)

    async def _run(self) -> None:
        try:
            await self._call.services.one_shots.run(
                self._call.args.text("name") or None,
                self._options,
                self._command,
                stdin=self._stdin,
                on_output=self._take,
                on_started=self._started,
                on_ended=self._told,
                on_progress=self._call.telling(),
            )
        finally:
            if self.seen.job is not None:
                self._call.endings.forget(self.seen.job.id)

    def _started(self, job: Job) -> None:
        self._call.endings.expect(job.id)
        super()._started(job)

    async def _told(self, result: ExecResult) -> None:
        self._ended(result)
        if self._is_left and self.seen.job is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(LINGER_S):
                    await self._call.endings.wait(self.seen.job.id)

    def _cut(self) -> None:
        # Taking back a launch, or removing the sandbox, is waited for before this server ends.
        self._task.cancel()
        self._call.later(self._removed())

    async def _removed(self) -> None:
        await asyncio.wait((self._task,))
