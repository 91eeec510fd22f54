"""One who takes part in a job: reads its output, types into it, sizes its terminal, and leaves without ending it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing

from sbxtui.core.errors import Conflict
from sbxtui.core.jobs import Job, JobOutput, TerminalSize
from sbxtui.core.model import ExecResult
from sbxtui.guest.client import GuestClient
from sbxtui.services.jobnotes import JobNotes, exit_of

OnOutput = Callable[[str, bytes], Awaitable[None]]


class Attachment:
    """Made by `Jobs.attach`, and usable until that block is left. `job` is as its guest told it then.

    Any number of people may be attached to one job. At a terminal each types what they like; a pipe has one stream of
    input, to which what is sent here is appended.
    """

    def __init__(self, guest: GuestClient, job: Job, notes: JobNotes) -> None:
        self._guest = guest
        self._notes = notes
        self.job = job

    async def run(
        self, *, cursor: int = 0, stdin: bytes | AsyncIterator[bytes] | None = None, on_output: OnOutput | None = None
    ) -> ExecResult:
        """Take part until the job ends; cancelling leaves it running.

        Args:
            cursor: Where in its log to begin; 0 gives all that is kept.
            stdin: What to type. The end of a pipe's input is sent, too; a terminal has none.
            on_output: Called with ("out", "err" or "pty", bytes); without it the result carries all.

        Raises:
            Conflict: It was started without input. ConnectionLost: No way back for 30 s; it goes on.
        """
        if stdin is not None:
            self._check_input()
            await self._notes.event(self.job, "job.input")
        result = await self._guest.jobs.rejoin(self.job, cursor=cursor, stdin=stdin, on_output=on_output)
        await self._notes.ended(self.job, exit_of(result))
        return result

    async def resize(self, size: TerminalSize) -> None:
        """Give the job's terminal another size; everybody who is attached sees what that changes."""
        await self._guest.jobs.resize(self.job.id, size.cols, size.rows)

    async def said(self, cursor: int) -> AsyncGenerator[JobOutput, None]:
        """What the job has said by now, from `cursor` on; what is no longer kept is passed over."""
        pieces = self._guest.jobs.follow(self.job.id, cursor=cursor, until_quiet=True)
        async with aclosing(pieces):
            async for piece in pieces:
                if isinstance(piece, JobOutput):
                    yield piece

    async def latest(self, limit_bytes: int) -> tuple[bytes, int]:
        """The last bytes of the log, at most `limit_bytes`, and the cursor behind them."""
        cursor = self.job.cursor
        data = bytearray()
        start = max(0, cursor - limit_bytes)
        async for piece in self.said(start):
            data += piece.data
            del data[:-limit_bytes]
            cursor = piece.cursor + len(piece.data)
        return bytes(data), cursor

    def _check_input(self) -> None:
        if not self.job.has_stdin:
            raise Conflict(
                f"job `{self.job.id}` in `{self.job.sandbox}` was started without input",
                hint="begin it with -i to type into it",
            )
