"""Watching a command for a while: what it says, and how it ends if it does in that time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass

from sbxtui.core.errors import SbxError
from sbxtui.core.jobs import Channel, Job, JobExit, JobGap, JobOutput
from sbxtui.core.text import harmless_line
from sbxtui.mcp_server.call import Call
from sbxtui.mcp_server.clip import Clip

PROGRESS_EVERY_S = 5.0
_END_S = 1.5
_LAST_WORDS_BYTES = 400


@dataclass(slots=True)
class Watched:
    """What was seen of a command.

    Attributes:
        out: What it said, at a terminal all of it.
        err: What it said on its standard error.
        job: It, once it runs; never of an old guest, which keeps no jobs, and None of a sandbox that is gone by now.
        cursor: How far its log was read.
        exit: How it ended; None while it goes on.
    """

    out: Clip
    err: Clip
    job: Job | None = None
    cursor: int = 0
    exit: JobExit | None = None
    last_words: bytes = b""

    def said(self, data: bytes, *, is_error: bool) -> None:
        """It said something."""
        (self.err if is_error else self.out).add(data)
        self.last_words = (self.last_words + data)[-_LAST_WORDS_BYTES:]
        self.cursor += len(data)

    def missed(self, gap: JobGap) -> None:
        """It said something that nobody keeps any more."""
        self.out.skip(gap.end - gap.start)
        self.cursor = gap.end

    @property
    def goes_on(self) -> Job | None:
        """The job that it still is; None when it has ended, or is none."""
        return self.job if self.exit is None else None

    def as_data(self) -> dict[str, object]:
        """As a reply tells it."""
        session = {"name": self.job.sandbox, "session_id": self.job.id} if self.job is not None else {}
        return {
            **session,
            "state": "running" if self.exit is None else "exited",
            **(_exit_data(self.exit) if self.exit is not None else {}),
            "stdout": self.out,
            "stderr": self.err,
            **({"cursor": self.cursor} if session else {}),
            "untrusted": True,
        }


async def end(call: Call, job: Job) -> None:
    """End a command with everything it started: it is asked to, and killed if it does not."""
    jobs = call.services.jobs
    with suppress(SbxError):
        await jobs.end(job)
        if (await watch(call, job, wait_s=_END_S, keep_bytes=0)).exit is None:
            await jobs.signal(job, "KILL")


async def watch(call: Call, job: Job, *, wait_s: float, keep_bytes: int, cursor: int = 0) -> Watched:
    """Follow a job until it ends, or `wait_s` have passed; the job never notices.

    Raises:
        NotFound: Its guest knows it no more. ConnectionLost: No way to it; it goes on.
    """
    seen = Watched(Clip(keep_bytes), Clip(keep_bytes), job, cursor)
    async with telling(call, seen):
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s or None):
                await _follow(call, job, seen, until_quiet=not wait_s)
    return seen


async def _follow(call: Call, job: Job, seen: Watched, *, until_quiet: bool) -> None:
    pieces = call.services.jobs.follow(job, cursor=seen.cursor, until_quiet=until_quiet)
    async with aclosing(pieces):
        async for piece in pieces:
            match piece:
                case JobOutput():
                    seen.said(piece.data, is_error=piece.channel is Channel.ERR)
                case JobGap():
                    seen.missed(piece)
                case JobExit():
                    seen.exit = piece


@asynccontextmanager
async def telling(call: Call, seen: Watched) -> AsyncIterator[None]:
    """Keep a patient client patient, with the last line that was said."""

    async def tell() -> None:
        while True:
            await asyncio.sleep(PROGRESS_EVERY_S)
            lines = seen.last_words.decode("utf-8", "replace").split("\n")
            said = next((line for line in reversed(lines) if line.strip()), "")
            await call.progress(harmless_line(said) or "running")

    telling = asyncio.ensure_future(tell())
    try:
        yield
    finally:
        telling.cancel()


def _exit_data(ending: JobExit) -> dict[str, object]:
    """How a command ended; what is not so is left out."""
    facts: Mapping[str, object] = {
        "signal": ending.signal or None,
        "timed_out": ending.timed_out or None,
        "oom": ending.oom or None,
        "lingering": ending.lingering or None,
    }
    told = {key: value for key, value in facts.items() if value is not None}
    return {"exit_code": ending.exit_code, **told, "duration_ms": round(ending.duration_s * 1000)}
