"""The background work of the jobs tab: workers call the jobs services and post messages; none touches a widget."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING

from textual.message import Message

from sbxtui.core.errors import SbxError
from sbxtui.core.jobs import Job, JobExit, JobGap, JobOutput
from sbxtui.core.model import Sandbox
from sbxtui.tui.endings import result_words
from sbxtui.tui.feeding import feeder
from sbxtui.tui.fleet import key_of
from sbxtui.tui.tabs.watching import WatchingTab
from sbxtui.tui.widgets.transcript import Transcript
from sbxtui.tui.working import worker

if TYPE_CHECKING:
    from sbxtui.services.joblist import JobListing

# Of what a job has said before, so much is shown; the rest is left to `sbx output`.
_TAIL_BYTES = 256 * 1024


class Told(Message):
    """The jobs of a sandbox, or why they are not known. `key` is the sandbox's."""

    def __init__(self, key: str, listing: JobListing | None, error: SbxError | None = None) -> None:
        super().__init__()
        self.key = key
        self.listing = listing
        self.error = error


class Said(Message):
    """A followed job said more, or came to its end. Many of these are one."""

    def __init__(self, transcript: Transcript) -> None:
        super().__init__()
        self.transcript = transcript

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, Said) and message.transcript is self.transcript


class Done(Message):
    """Something was done to a job, or not."""

    def __init__(self, doing: str, words: str, error: SbxError | None = None) -> None:
        super().__init__()
        self.doing = doing
        self.words = words
        self.error = error


class JobWork(WatchingTab):
    """A tab that can work on a sandbox's jobs."""

    WATCH_GROUP = "jobs"

    @worker(exclusive=True, group="jobs")
    async def watch_jobs(self, sandbox: Sandbox, *, is_asked: bool) -> None:
        """Tell of a sandbox's jobs for as long as they are looked at."""
        key = key_of(sandbox)
        try:
            watch = await asyncio.to_thread(lambda: self.services.job_watch)
            row = await self.main.row_of(sandbox)
            async with aclosing(watch.follow(row, sandbox.state, is_asked=is_asked)) as listings:
                async for listing in listings:
                    self.post_message(Told(key, listing))
        except SbxError as exc:
            self.post_message(Told(key, None, exc))

    @worker(exclusive=True, group="follow")
    async def follow_job(self, job: Job, transcript: Transcript) -> None:
        """Show what a job said last and goes on to say, to its end."""
        transcript.begin(job.command)
        said = feeder(transcript, lambda: self.post_message(Said(transcript)))
        start = max(0, job.cursor - _TAIL_BYTES)
        if start:
            transcript.note(f"… {start:,} bytes before are in `sbx output {job.sandbox} {job.id}`")
        try:
            pieces = self.services.jobs.follow(job, cursor=start)
            async with aclosing(pieces):
                async for piece in pieces:
                    match piece:
                        case JobOutput():
                            await said(piece.channel.value, piece.data)
                        case JobGap():
                            transcript.note(f"… {piece.end - piece.start:,} bytes are no longer kept, or came too fast")
                        case JobExit():
                            words = result_words(piece.as_result(), transcript.output_lines)
                            transcript.finish(words, is_failure=piece.exit_code != 0)
        except SbxError as exc:
            transcript.finish(f"sbx: {exc.message}" + f" · {exc.hint}" * bool(exc.hint), is_failure=True)
        self.post_message(Said(transcript))

    def signal_job(self, job: Job, signal: str) -> None:
        """Send a signal to a job."""

        async def act() -> str:
            await self.services.jobs.signal(job, signal)
            return f"sent {signal} to job {job.id[:8]}"

        self._act(f"kill {job.id[:8]}", act)

    def remove_job(self, job: Job) -> None:
        """End a job and forget it."""

        async def act() -> str:
            await self.services.jobs.remove(job)
            return f"forgot job {job.id[:8]}"

        self._act(f"remove {job.id[:8]}", act)

    @worker(group="change")
    async def _act(self, doing: str, act: Callable[[], Awaitable[str]]) -> None:
        try:
            self.post_message(Done(doing, await act()))
        except SbxError as exc:
            self.post_message(Done(doing, "", exc))
