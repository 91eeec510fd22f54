"""The v1 contract, as older clients speak it: one blocking call each, content in base64, errors as `{"detail"}`.

Answered from the same job table and the same atomic writes as v2, so every job of a v1 caller is seen by the others.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sbxguest import wire
from sbxguest.app import Request, Response, Route, WireError, error_response, json_response
from sbxguest.fileops import FileError, FileReader, resolve
from sbxguest.filepool import aborted, in_thread, journal_of, owner_of, soon
from sbxguest.filewrite import AtomicWriter, WriteOptions
from sbxguest.job import Job
from sbxguest.jobspec import parse

MAX_OUTPUT_BYTES = 64 * wire.MIB
MAX_WRITE_BODY_BYTES = 96 * wire.MIB
_READ_BYTES = 256 * wire.KIB
# Base64 of a multiple of three bytes needs no padding, so pieces can be joined.
_ENCODE_BYTES = 3 * 128 * wire.KIB
_ENCODINGS = ("base64", "utf-8")


class Calls:
    """Commands being run inside one request: a suspend waits for these, as nothing else could fetch their result."""

    def __init__(self) -> None:
        self._count = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @contextmanager
    def one(self) -> Iterator[None]:
        """A call is under way within the block."""
        self._count += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._count -= 1
            if not self._count:
                self._idle.set()

    async def wait_idle(self) -> None:
        """Return when none is under way."""
        await self._idle.wait()


calls = Calls()

Handler = Callable[[Request], Awaitable[Response]]


def _v1(handler: Handler) -> Handler:
    """Errors in v1's shape, and in ours beside it."""

    async def answer(request: Request) -> Response:
        try:
            return await handler(request)
        except WireError as error:
            ours = error_response(error)
            said = json.loads(ours.body) if isinstance(ours.body, bytes) else {}
            return json_response({"detail": error.message, **said}, status=ours.status, headers=ours.headers)

    return answer


@_v1
async def post_exec(request: Request) -> Response:
    """POST /v1/exec {command, args, cwd?, env?, timeout?}: runs it and answers when it is over.

    504 when it ran out of `timeout`, 400 when there is no such command. A caller that goes away ends the command.
    """
    body = await request.json()
    spec = parse(_job_body(body), request.guest.state)
    with calls.one():
        job, _ = await request.guest.jobs.start(spec)
        collect = asyncio.ensure_future(_collect(job))
        gone = asyncio.ensure_future(request.until_disconnect())
        try:
            await asyncio.wait((collect, gone), return_when=asyncio.FIRST_COMPLETED)
            if not collect.done():
                await request.guest.jobs.delete(job.id)
                raise WireError(409, "disconnected", "the caller went away and the command was ended")
            out, err, is_whole = collect.result()
        finally:
            collect.cancel()
            gone.cancel()
    return _exec_answer(job, str(body["command"]), body.get("timeout"), out, err, is_whole)


def _job_body(body: dict[str, Any]) -> dict[str, Any]:
    command, args = body.get("command"), body.get("args")
    if not isinstance(command, str) or not command:
        raise WireError(400, "bad_request", "`command` must be a string")
    if args is not None and not (isinstance(args, list) and all(isinstance(one, str) for one in args)):
        raise WireError(400, "bad_request", "`args` must be a list of strings")
    job = {"id": f"v1-{os.urandom(8).hex()}", "argv": [command, *(args or [])], "log": "hold", "actor": "v1"}
    renamed = (("cwd", "cwd"), ("env", "env"), ("timeout", "timeout_s"))
    return job | {new: body[old] for old, new in renamed if body.get(old) is not None}


async def _collect(job: Job) -> tuple[bytearray, bytearray, bool]:
    """stdout, stderr, and whether they are whole: what comes after `MAX_OUTPUT_BYTES` is read and dropped."""
    output = {wire.Channel.OUT: bytearray(), wire.Channel.ERR: bytearray()}
    cursor = 0
    is_whole = True
    with job.watched(holds=True) as reader:
        while True:
            pieces: list[bytes] = []
            cursor = job.log.read(cursor, _READ_BYTES, pieces)
            for frame in wire.FrameDecoder().feed(b"".join(pieces)):
                room = MAX_OUTPUT_BYTES - sum(map(len, output.values()))
                is_whole = is_whole and frame.type == wire.FrameType.DATA and len(frame.payload) <= room
                if frame.type == wire.FrameType.DATA:
                    output[wire.Channel(frame.channel)] += frame.payload[:room]
            job.acknowledge(cursor, reader)
            if not pieces and job.is_finished:
                return output[wire.Channel.OUT], output[wire.Channel.ERR], is_whole
            # Every round lets others run; only an empty one waits.
            await (asyncio.sleep(0) if pieces else job.changed())


def _exec_answer(job: Job, command: str, timeout: object, out: bytearray, err: bytearray, is_whole: bool) -> Response:
    end = job.exit
    if job.failure is not None and end["code"] in (126, 127):
        what = "command not found" if end["code"] == 127 else "not executable"
        raise WireError(400, "command_not_found", f"{what}: {command[:200]}")
    if end["timed_out"]:
        raise WireError(504, "command_timed_out", f"command timed out after {timeout}s")
    code = end["code"] if end["signal"] is None else 128 + int(end["signal"])
    head = f'{{"exit_code":{code},"encoding":"base64"' + ("" if is_whole else ',"truncated":true')
    return Response(200, _exec_body(head, out, err), "application/json")


async def _exec_body(head: str, out: bytearray, err: bytearray) -> AsyncGenerator[bytes, None]:
    yield head.encode()
    for name, content in (("stdout", out), ("stderr", err)):
        yield f',"{name}":"'.encode()
        for start in range(0, len(content), _ENCODE_BYTES):
            yield base64.b64encode(memoryview(content)[start : start + _ENCODE_BYTES])
        yield b'"'
    yield b"}"


@_v1
async def post_read(request: Request) -> Response:
    """POST /v1/fs/read {path} → {content, encoding}."""
    path = _path(await request.json(), request)
    reader = await in_thread(FileReader, path)
    return Response(200, _read_body(reader), "application/json")


async def _read_body(reader: FileReader) -> AsyncGenerator[bytes, None]:
    offset = 0
    try:
        yield b'{"encoding":"base64","content":"'
        pending = b""
        while chunk := await in_thread(reader.read, offset, _ENCODE_BYTES):
            offset += len(chunk)
            pending += chunk
            whole = len(pending) // 3 * 3
            yield base64.b64encode(pending[:whole])
            pending = pending[whole:]
        yield base64.b64encode(pending) + b'"}'
    finally:
        soon(reader.close)


@_v1
async def post_write(request: Request) -> Response:
    """POST /v1/fs/write {path, content, encoding} → {bytes_written}; makes missing folders, all or nothing."""
    body = await request.json(limit_bytes=MAX_WRITE_BODY_BYTES)
    path, content = _path(body, request), await in_thread(_content, body)
    guest = request.guest
    options = WriteOptions(has_parents=True, size_bytes=len(content))
    writer = await in_thread(AtomicWriter, path, options, owner_of(guest.state.settings), journal_of(guest))
    try:
        await in_thread(writer.write, [content])
        await in_thread(writer.commit)
    finally:
        await aborted(writer)
    return json_response({"bytes_written": len(content)})


def _content(body: dict[str, Any]) -> bytes:
    content, encoding = body.get("content"), body.get("encoding", "utf-8")
    if not isinstance(content, str) or encoding not in _ENCODINGS:
        raise FileError("bad_request", 400, "`content` must be a string and `encoding` base64 or utf-8")
    try:
        return base64.b64decode(content, validate=True) if encoding == "base64" else content.encode()
    except (binascii.Error, ValueError) as exc:
        raise FileError("bad_request", 400, f"`content` is no {encoding}") from exc


def _path(body: dict[str, Any], request: Request) -> str:
    path = body.get("path")
    if not isinstance(path, str):
        raise WireError(400, "bad_request", "`path` must be a string")
    try:
        state = request.guest.state
        return resolve(path, state.workdir, state.settings.root)
    except FileError as exc:
        raise WireError(exc.status, exc.code, exc.message) from exc


ROUTES = (
    Route("POST", "/v1/exec", post_exec),
    Route("POST", "/v1/fs/read", post_read),
    Route("POST", "/v1/fs/write", post_write),
)
