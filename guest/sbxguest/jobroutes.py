"""`/v2/jobs`: the HTTP face of the job table."""

from __future__ import annotations

from sbxguest import wire
from sbxguest.app import Request, Response, Route, WireError, json_response
from sbxguest.awaiting import awaits_input
from sbxguest.job import Job
from sbxguest.jobspec import parse, parse_size
from sbxguest.jobviews import (
    check_boot,
    cursor_of,
    frames_of,
    frames_response,
    inline_output,
    job_of,
    parse_signal,
    reader_of,
    wait_finished,
    window_of,
)

_STDIN_STALL_S = 10.0


async def create(request: Request) -> Response:
    """`POST /v2/jobs`. With `?follow=1` the answer is the job's frames from the start; with `?wait_s=` its result."""
    check_boot(request)
    wait_s = request.number("wait_s", 0, high=wire.MAX_WAIT_S)
    spec = parse(await request.json(limit_bytes=wire.MAX_SPEC_BYTES), request.guest.state)
    job, is_new = await request.guest.jobs.start(spec)
    status = 201 if is_new else 200
    if request.flag("follow"):
        return _frames(request, job, cursor=0, holds=True, is_first=True, status=status)
    if wait_s:
        await wait_finished(job, wait_s)
    document = job.describe()
    if wait_s and job.is_finished:
        document["output"] = inline_output(job)
    return json_response(document, status=status)


async def list_all(request: Request) -> Response:
    """`GET /v2/jobs`."""
    check_boot(request)
    return json_response({"jobs": [_as_seen(job) for job in request.guest.jobs.all()]})


async def get(request: Request) -> Response:
    """`GET /v2/jobs/{id}`."""
    job = job_of(request)
    wait_s = request.number("wait_s", 0, high=wire.MAX_WAIT_S)
    if wait_s:
        await wait_finished(job, wait_s)
    return json_response(_as_seen(job))


def _as_seen(job: Job) -> dict[str, object]:
    """A job for whoever asks how it is."""
    return {**job.describe(), "awaits_input": awaits_input(job)}


async def follow(request: Request) -> Response:
    """`GET /v2/jobs/{id}/log?cursor=&follow=1`. `hold=1` makes the caller a reader a `hold` job waits for.

    `reader=` is a name by which it is known again when it asks for the next piece, or after a cut.
    """
    job = job_of(request)
    cursor = cursor_of(request, job)
    return _frames(request, job, cursor=cursor, holds=request.flag("hold"), is_first=False, status=200)


async def write_stdin(request: Request) -> Response:
    """`POST /v2/jobs/{id}/stdin?offset=N[&eof=1]`: what was accepted before `offset + len` is not written twice.

    A job that does not read is waited for only so long that no proxy cuts the request: `accepted` says how far it got,
    and an end that was not reached is told by `ended` being false.
    """
    job = job_of(request)
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
        if request.flag("eof"):
            is_whole = is_whole and await job.input.end(offset, writer=writer, stall_s=_STDIN_STALL_S)
    return _taken(job, writer, is_whole=is_whole)


def _taken(job: Job, writer: str, *, is_whole: bool) -> Response:
    return json_response({"accepted": job.input.accepted(writer), **({} if is_whole else {"ended": False})})


async def end_stdin(request: Request) -> Response:
    """`POST /v2/jobs/{id}/eof[?offset=N]`: ends a pipe; types an end at a terminal, once for each offset."""
    job = job_of(request)
    writer = request.query.get("writer", "")
    job.input.check()
    async with job.input.turn(writer):
        offset = request.whole("offset", job.input.accepted(writer))
        is_whole = await job.input.end(offset, writer=writer, stall_s=_STDIN_STALL_S)
    return _taken(job, writer, is_whole=is_whole)


async def resize(request: Request) -> Response:
    """`POST /v2/jobs/{id}/resize` {cols, rows}."""
    job = job_of(request)
    job.resize(parse_size(await request.json()))
    return json_response(job.describe())


async def send_signal(request: Request) -> Response:
    """`POST /v2/jobs/{id}/signal` {sig: "TERM" | "SIGTERM" | 15, to: leader | group | tree}."""
    job = job_of(request)
    job.signal(*parse_signal(await request.json()))
    return json_response(job.describe())


async def end(request: Request) -> Response:
    """`POST /v2/jobs/{id}/end`: TERM to its group, and after its grace period KILL to everything it ever started."""
    job = job_of(request)
    job.end()
    return json_response(job.describe())


async def upgrade(request: Request) -> Response:
    """`GET /v2/jobs/{id}/attach` without an upgrade."""
    job_of(request)
    raise WireError(426, "upgrade_required", "attaching takes a WebSocket", hint="or use the log and stdin of the job")


async def delete(request: Request) -> Response:
    """`DELETE /v2/jobs/{id}`: ends it with everything it started, and forgets it."""
    job = job_of(request)
    document = job.describe()
    await request.guest.jobs.delete(job.id)
    return json_response(document)


def _frames(request: Request, job: Job, *, cursor: int, holds: bool, is_first: bool, status: int) -> Response:
    limit_bytes = window_of(request, job, holds=holds)
    wants_follow = is_first or request.flag("follow")
    frames = frames_of(
        job,
        cursor,
        wants_follow=wants_follow,
        holds=holds,
        reader=reader_of(request),
        limit_bytes=limit_bytes,
        is_first=is_first,
    )
    return frames_response(frames, status=status)


ROUTES = (
    Route("POST", "/v2/jobs", create),
    Route("GET", "/v2/jobs", list_all),
    Route("GET", "/v2/jobs/{id}", get),
    Route("DELETE", "/v2/jobs/{id}", delete),
    Route("GET", "/v2/jobs/{id}/log", follow),
    Route("GET", "/v2/jobs/{id}/attach", upgrade),
    Route("POST", "/v2/jobs/{id}/stdin", write_stdin),
    Route("POST", "/v2/jobs/{id}/eof", end_stdin),
    Route("POST", "/v2/jobs/{id}/signal", send_signal),
    Route("POST", "/v2/jobs/{id}/end", end),
    Route("POST", "/v2/jobs/{id}/resize", resize),
)
