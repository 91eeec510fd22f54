"""What HTTP and WebSocket have in common about a job: finding it, its frames, and what may be asked of it."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import signal
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from sbxguest import wire
from sbxguest.app import LastPiece, Request, Response, WireError
from sbxguest.job import Job

_READER_MAX = 64
_TARGETS = ("leader", "group", "tree")


def check_boot(request: Request) -> None:
    """Check that the caller means this boot: its header, or `boot` in the query where a header is not possible.

    Raises:
        WireError: 410, it means another one.
    """
    asked = request.headers.get(wire.BOOT_HEADER, "") or request.query.get("boot", "")
    boot_id = request.guest.state.boot_id
    if asked and asked != boot_id:
        raise WireError(
            410,
            "boot_changed",
            "this sandbox was started anew since; jobs of before are gone and nothing was run",
            hint="say hello again and go on with the new boot id",
            details={"boot_id": boot_id},
        )


def job_of(request: Request) -> Job:
    """The job the path names.

    Raises:
        WireError: 410 another boot; 404.
    """
    check_boot(request)
    return request.guest.jobs.get(request.params["id"])


def cursor_of(request: Request, job: Job) -> int:
    """Where the caller wants to read from.

    Raises:
        WireError: 416, the log is not that long.
    """
    cursor = request.whole("cursor", 0)
    if cursor > job.log.total:
        raise WireError(
            416,
            "bad_cursor",
            f"the log of job `{job.id}` ends at {job.log.total}, before cursor {cursor}",
            details={"cursor": job.log.total},
        )
    return cursor


def window_of(request: Request, job: Job, *, holds: bool) -> int | None:
    """How many bytes one answer may have: what the caller asked for, less for the reader a job waits for.

    Raises:
        WireError: 400.
    """
    limit_bytes = request.whole("max_bytes", 0) or None
    if holds and job.shown["log"] == "hold":
        # A request's cursor is what says how far its reader is: it must come again before the ring is full.
        limit_bytes = min(limit_bytes or job.log.ring_bytes, job.log.ring_bytes // 2)
    return limit_bytes


def reader_of(request: Request) -> str:
    """The name under which a reader comes again, so that a job knows it; empty without one.

    Raises:
        WireError: 400.
    """
    name = request.query.get("reader", "")
    if len(name) > _READER_MAX or not name.isprintable():
        raise WireError(400, "bad_query", f"`reader` must be at most {_READER_MAX} printable characters")
    return name


async def wait_finished(job: Job, wait_s: float) -> None:
    """Until the job is over, or for `wait_s` seconds."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(wait_s):
            while not job.is_finished:
                await job.changed()


def inline_output(job: Job) -> dict[str, str] | None:
    """All channels in base64, or None if they are too large for it or no longer whole: then read the log."""
    if job.log.total > wire.MAX_INLINE_OUTPUT_BYTES or job.log.floor > wire.HEAD_BYTES:
        return None
    pieces: list[bytes] = []
    job.log.read(0, wire.MAX_INLINE_OUTPUT_BYTES, pieces)
    output = {wire.Channel.OUT: bytearray(), wire.Channel.ERR: bytearray(), wire.Channel.PTY: bytearray()}
    for frame in wire.FrameDecoder().feed(b"".join(pieces)):
        output[wire.Channel(frame.channel)] += frame.payload
    return {
        "encoding": "base64",
        "stdout": base64.b64encode(output[wire.Channel.OUT]).decode(),
        "stderr": base64.b64encode(output[wire.Channel.ERR]).decode(),
        "pty": base64.b64encode(output[wire.Channel.PTY]).decode(),
    }


def frames_response(frames: AsyncIterator[bytes], *, status: int) -> Response:
    """A body of frames."""
    return Response(status, frames, wire.FRAMES_TYPE, (("cache-control", "no-store"),))


async def frames_of(
    job: Job,
    cursor: int,
    *,
    wants_follow: bool,
    holds: bool,
    reader: str = "",
    limit_bytes: int | None = None,
    is_first: bool = False,
    piece_bytes: int = 256 * wire.KIB,
) -> AsyncGenerator[bytes, None]:
    """A reader's frames. Without EXIT at the end there is more: `limit_bytes` were sent, or no follow was asked for."""
    if is_first:
        yield wire.encode(wire.json_frame(wire.FrameType.JOB, cursor, job.describe()))
    elif wants_follow:
        # Something at once, so that a reader knows it has reached the guest although the job is silent.
        yield wire.encode(wire.Frame(wire.FrameType.HEARTBEAT, cursor))
    end_limit = float("inf") if limit_bytes is None else cursor + limit_bytes
    with job.watched(holds=holds, cursor=cursor, reader=reader):
        job.use_room()
        while cursor < end_limit:
            if job.log.is_closed:
                return
            pieces: list[bytes] = []
            cursor = job.log.read(cursor, piece_bytes, pieces)
            if pieces:
                yield b"".join(pieces)
                continue
            if job.is_finished:
                yield LastPiece(wire.encode(wire.json_frame(wire.FrameType.EXIT, cursor, job.exit)))
                return
            if not wants_follow:
                return
            try:
                async with asyncio.timeout(wire.HEARTBEAT_S):
                    await job.changed()
            except TimeoutError:
                yield wire.encode(wire.Frame(wire.FrameType.HEARTBEAT, cursor))


def parse_signal(body: dict[str, Any]) -> tuple[int, str]:
    """The number and the target of a `{sig, to}`.

    Raises:
        WireError: 400 `bad_signal`.
    """
    target = body.get("to", "group")
    if target not in _TARGETS:
        raise WireError(400, "bad_signal", f"`to` must be one of {', '.join(_TARGETS)}")
    return _signal_number(body.get("sig", "TERM")), target


def _signal_number(value: Any) -> int:
    if isinstance(value, str):
        name = value.upper()
        name = name if name.startswith("SIG") else f"SIG{name}"
        if name in signal.Signals.__members__:
            return signal.Signals[name]
    elif isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 64:
        return value
    raise WireError(400, "bad_signal", "`sig` must be the name of a signal, like TERM, or its number")
