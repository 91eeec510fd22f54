"""What HTTP and WebSocket have in common about a job: finding it, its frames, and what may be asked of it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncGenerator
from typing import Any

from sbxguest import wire
from sbxguest.app import Request, WireError
from sbxguest.job import Job

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


async def frames_of(
    job: Job,
    cursor: int,
    *,
    wants_follow: bool,
    holds: bool,
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
    if holds:
        job.acknowledge(cursor)
    end_limit = float("inf") if limit_bytes is None else cursor + limit_bytes
    with job.watched(holds=holds):
        while cursor < end_limit:
            if job.log.is_closed:
                return
            pieces: list[bytes] = []
            cursor = job.log.read(cursor, piece_bytes, pieces)
            if pieces:
                yield b"".join(pieces)
                continue
            if job.is_finished:
                yield wire.encode(wire.json_frame(wire.FrameType.EXIT, cursor, job.exit))
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
