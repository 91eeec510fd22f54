"""`/v2/shells`: the HTTP face of the pseudo-shells."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from sbxguest import wire
from sbxguest.app import Request, Response, Route, WireError, json_response
from sbxguest.completion import NAMES_MAX, complete_command, complete_path
from sbxguest.filepool import in_thread
from sbxguest.jobspec import JobSpec, digest_of, parse
from sbxguest.jobviews import check_boot, frames_of, frames_response, inline_output, reader_of, wait_finished, window_of
from sbxguest.shells import Line, Shell
from sbxguest.state import GuestState

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_COMPLETE_S = 2.0
_WORD_MAX = 4096
# Of a job's request, what makes no sense for a line: the shell's state decides it.
_NOT_FOR_LINES = ("argv", "shell", "cwd", "env", "user")


async def list_all(request: Request) -> Response:
    """`GET /v2/shells`."""
    check_boot(request)
    return json_response({"shells": [shell.describe() for shell in request.guest.shells.all()]})


async def get(request: Request) -> Response:
    """`GET /v2/shells/{name}`: where it is, the names of its variables, and its queue."""
    return json_response(request.guest.shells.get(_name_of(request)).describe())


async def add_line(request: Request) -> Response:
    """`POST /v2/shells/{name}` {id, line, actor, and what else a job may have but argv, shell, cwd, env and user}.

    The line becomes the job `id` when it is its turn. With `?follow=1` the answer is its frames, HEARTBEAT until then;
    with `?wait_s=` its result, if it is there in time. A line that waits is answered 202 as the queue shows it. The
    EXIT of its job says in `shell` where the shell is now, and why, if the line's state is not kept. A retry is safe.
    """
    name = _name_of(request)
    wait_s = request.number("wait_s", 0, high=wire.MAX_WAIT_S)
    spec = _spec(await request.json(limit_bytes=wire.MAX_SPEC_BYTES), request.guest.state)
    shell, line, is_new = request.guest.shells.submit(name, spec)
    if shell.queue and line is shell.queue[0] and line.job is None:
        await line.moved.wait()
    elif wait_s and line.job is None:
        await _wait_moved(line, wait_s)
    if line.error is not None:
        raise line.error
    status = 201 if is_new else 200
    if request.flag("follow"):
        return frames_response(_frames(request, line), status=status)
    if line.job is None:
        return json_response(line.describe(name, _position(shell, line)), status=202)
    if wait_s:
        await wait_finished(line.job, wait_s)
    document = line.job.describe()
    if wait_s and line.job.is_finished:
        document["output"] = inline_output(line.job)
    return json_response(document, status=status)


async def cancel_line(request: Request) -> Response:
    """`DELETE /v2/shells/{name}/lines/{id}`: a line that waits never runs."""
    name = _name_of(request)
    request.guest.shells.cancel(name, request.params["id"])
    return json_response(request.guest.shells.get(name).describe())


async def delete(request: Request) -> Response:
    """`DELETE /v2/shells/{name}`: forgets its state and its queue, and ends the line that runs."""
    return json_response(request.guest.shells.delete(_name_of(request)).describe())


async def complete(request: Request) -> Response:
    """`GET /v2/shells/{name}/complete?word=[&kind=command][&limit=]`: names of files, or of programs.

    Also for a shell that no line has made yet. A disk that does not answer gives 504.
    """
    name, word = _name_of(request), request.query.get("word", "")
    if "\0" in word or len(word) > _WORD_MAX:
        raise WireError(400, "bad_query", f"`word` must be at most {_WORD_MAX} characters without NUL bytes")
    limit = min(request.whole("limit", NAMES_MAX), NAMES_MAX)
    state, root = request.guest.shells.state_of(name), request.guest.state.settings.root
    try:
        async with asyncio.timeout(_COMPLETE_S):
            if request.query.get("kind") == "command" and "/" not in word:
                return json_response(await in_thread(complete_command, word, state.env, limit))
            home = state.env.get("HOME", "")
            return json_response(await in_thread(complete_path, word, state.cwd, home, root, limit))
    except TimeoutError as exc:
        raise WireError(504, "too_slow", "the folder did not answer in time") from exc


def _name_of(request: Request) -> str:
    check_boot(request)
    name = request.params["name"]
    if not _NAME.fullmatch(name):
        raise WireError(400, "bad_name", "a shell's name is 1 to 64 of A-Z, a-z, 0-9, _, . and -")
    return name


def _spec(body: Mapping[str, Any], state: GuestState) -> JobSpec:
    line = body.get("line")
    if not isinstance(line, str) or "\0" in line:
        raise WireError(400, "bad_line", "`line` must be a string without NUL bytes")
    if len(line.encode("utf-8", "surrogatepass")) > wire.MAX_LINE_BYTES:
        raise WireError(
            413, "argv_too_long", f"a line has at most {wire.MAX_LINE_BYTES} bytes", hint="put it in a file"
        )
    if extra := [name for name in _NOT_FOR_LINES if body.get(name) is not None]:
        raise WireError(
            400, "bad_line", f"a line has no `{extra[0]}` of its own: its shell's state is what it runs with"
        )
    spec = parse({**{name: value for name, value in body.items() if name != "line"}, "argv": ["true"]}, state)
    return replace(spec, shell=line, digest=digest_of(body))


def _position(shell: Shell, line: Line) -> int:
    return shell.queue.index(line) if line in shell.queue else 0


async def _wait_moved(line: Line, wait_s: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(wait_s):
            await line.moved.wait()


async def _frames(request: Request, line: Line) -> AsyncGenerator[bytes, None]:
    while line.job is None and line.error is None:
        yield wire.encode(wire.Frame(wire.FrameType.HEARTBEAT, 0))
        await _wait_moved(line, wire.HEARTBEAT_S)
    if line.job is None:
        error = line.error or WireError(410, "line_dropped", "the line did not run")
        yield wire.encode(wire.json_frame(wire.FrameType.ERROR, 0, error.document()))
        return
    limit_bytes = window_of(request, line.job, holds=True)
    reader = reader_of(request)
    frames = frames_of(
        line.job, 0, wants_follow=True, holds=True, reader=reader, limit_bytes=limit_bytes, is_first=True
    )
    async with aclosing(frames):
        async for piece in frames:
            yield piece


ROUTES = (
    Route("GET", "/v2/shells", list_all),
    Route("GET", "/v2/shells/{name}", get),
    Route("POST", "/v2/shells/{name}", add_line),
    Route("DELETE", "/v2/shells/{name}", delete),
    Route("GET", "/v2/shells/{name}/complete", complete),
    Route("DELETE", "/v2/shells/{name}/lines/{id}", cancel_line),
)
