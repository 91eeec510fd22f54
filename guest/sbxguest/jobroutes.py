"""`/v2/jobs`: the HTTP face of the job table."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import signal
from collections.abc import AsyncIterator
from typing import Any

from sbxguest import wire
from sbxguest.app import Request, Response, Route, WireError, json_response
from sbxguest.job import Job
from sbxguest.jobspec import parse, parse_size

_READ_BYTES = 256 * wire.KIB
_STDIN_STALL_S = 10.0
_TARGETS = ("leader", "group", "tree")


async def create(request: Request) -> Response:
    """`POST /v2/jobs`. With `?follow=1` the answer is the job's frames from the start; with `?wait_s=` its result."""
    _check_boot(request)
    wait_s = request.number("wait_s", 0, high=wire.MAX_WAIT_S)
    spec = parse(await request.json(limit_bytes=wire.MAX_SPEC_BYTES), request.guest.state)
    job, is_new = await request.guest.jobs.start(spec)
    status = 201 if is_new else 200
    if request.flag("follow"):
        return _frames(request, job, cursor=0, holds=True, is_first=True, status=status)
    if wait_s:
        await _wait_finished(job, wait_s)
    document = job.describe()
    if wait_s and job.is_finished:
        document["output"] = _inline_output(job)
    return json_response(document, status=status)


async def list_all(request: Request) -> Response:
    """`GET /v2/jobs`."""
    _check_boot(request)
    return json_response({"jobs": [job.describe() for job in request.guest.jobs.all()]})


async def get(request: Request) -> Response:
    """`GET /v2/jobs/{id}`."""
    job = _job(request)
    wait_s = request.number("wait_s", 0, high=wire.MAX_WAIT_S)
    if wait_s:
        await _wait_finished(job, wait_s)
    return json_response(job.describe())


async def follow(request: Request) -> Response:
    """`GET /v2/jobs/{id}/log?cursor=&follow=1`. `hold=1` makes the caller the reader a `hold` job waits for."""
    job = _job(request)
    cursor = request.whole("cursor", 0)
    if cursor > job.log.total:
        raise WireError(
            416,
            "bad_cursor",
            f"the log of job `{job.id}` ends at {job.log.total}, before cursor {cursor}",
            details={"cursor": job.log.total},
        )
    return _frames(request, job, cursor=cursor, holds=request.flag("hold"), is_first=False, status=200)


async def write_stdin(request: Request) -> Response:
    """`POST /v2/jobs/{id}/stdin?offset=N[&eof=1]`: what was accepted before `offset + len` is not written twice.

    A job that does not read is waited for only so long that no proxy cuts the request: `accepted` says how far it got.
    """
    job = _job(request)
    offset, writer = request.whole("offset", 0), request.query.get("writer", "")
    job.input.check()
    async with job.input.turn(writer):
        job.input.check()
        job.input.check_offset(offset, writer)
        is_whole = True
        async for piece in request.stream():
            is_whole = await job.input.write(offset, piece, writer=writer, stall_s=_STDIN_STALL_S)
            offset += len(piece)
            if not is_whole:
                break
        job.input.check()
        if request.flag("eof") and is_whole:
            await job.input.end(offset, writer=writer)
    return json_response({"accepted": job.input.accepted(writer)})


async def end_stdin(request: Request) -> Response:
    """`POST /v2/jobs/{id}/eof[?offset=N]`: ends a pipe; types an end at a terminal, once for each offset."""
    job = _job(request)
    writer = request.query.get("writer", "")
    job.input.check()
    async with job.input.turn(writer):
        await job.input.end(request.whole("offset", job.input.accepted(writer)), writer=writer)
    return json_response({"accepted": job.input.accepted(writer)})


async def resize(request: Request) -> Response:
    """`POST /v2/jobs/{id}/resize` {cols, rows}."""
    job = _job(request)
    job.resize(parse_size(await request.json()))
    return json_response(job.describe())


async def send_signal(request: Request) -> Response:
    """`POST /v2/jobs/{id}/signal` {sig: "TERM" | "SIGTERM" | 15, to: leader | group | tree}."""
    job = _job(request)
    job.signal(*parse_signal(await request.json()))
    return json_response(job.describe())


async def delete(request: Request) -> Response:
    """`DELETE /v2/jobs/{id}`: ends it with everything it started, and forgets it."""
    job = _job(request)
    document = job.describe()
    await request.guest.jobs.delete(job.id)
    return json_response(document)


def _check_boot(request: Request) -> None:
    asked = request.headers.get(wire.BOOT_HEADER, "")
    boot_id = request.guest.state.boot_id
    if asked and asked != boot_id:
        raise WireError(
            410,
            "boot_changed",
            "this sandbox was started anew since; jobs of before are gone and nothing was run",
            hint="say hello again and go on with the new boot id",
            details={"boot_id": boot_id},
        )


def _job(request: Request) -> Job:
    _check_boot(request)
    return request.guest.jobs.get(request.params["id"])


async def _wait_finished(job: Job, wait_s: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(wait_s):
            while not job.is_finished:
                await job.changed()


def _inline_output(job: Job) -> dict[str, str] | None:
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


# -- frames -----------------------------------------------------------------------------------------------------------


def _frames(request: Request, job: Job, *, cursor: int, holds: bool, is_first: bool, status: int) -> Response:
    limit_bytes = request.whole("max_bytes", 0) or None
    if holds and job.shown["log"] == "hold":
        # A request's cursor is what says how far its reader is: it must come again before the ring is full.
        limit_bytes = min(limit_bytes or job.log.ring_bytes, job.log.ring_bytes // 2)
    wants_follow = is_first or request.flag("follow")
    body = _stream(job, cursor, wants_follow=wants_follow, holds=holds, limit_bytes=limit_bytes, is_first=is_first)
    return Response(status, body, wire.FRAMES_TYPE, (("cache-control", "no-store"),))


async def _stream(
    job: Job, cursor: int, *, wants_follow: bool, holds: bool, limit_bytes: int | None, is_first: bool
) -> AsyncIterator[bytes]:
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
            cursor = job.log.read(cursor, _READ_BYTES, pieces)
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


ROUTES = (
    Route("POST", "/v2/jobs", create),
    Route("GET", "/v2/jobs", list_all),
    Route("GET", "/v2/jobs/{id}", get),
    Route("DELETE", "/v2/jobs/{id}", delete),
    Route("GET", "/v2/jobs/{id}/log", follow),
    Route("POST", "/v2/jobs/{id}/stdin", write_stdin),
    Route("POST", "/v2/jobs/{id}/eof", end_stdin),
    Route("POST", "/v2/jobs/{id}/signal", send_signal),
    Route("POST", "/v2/jobs/{id}/resize", resize),
)
