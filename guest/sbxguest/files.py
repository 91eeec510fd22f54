"""`/v2/files`: contents, trees and operations. All disk work runs in this module's own few threads.

Bodies are raw bytes in both directions and never held whole: an upload gathers one batch while the batch before it is
being written, a download reads one chunk ahead.
"""

from __future__ import annotations

import asyncio
import os
import re
import stat
from collections.abc import AsyncGenerator, Iterator

from sbxguest import fileop
from sbxguest.app import Request, Response, Route, WireError, error_response, json_response
from sbxguest.fileops import FileReader, Owner, make_parents, translated
from sbxguest.filepool import (
    aborted,
    in_thread,
    journal_of,
    octal,
    owner_of,
    path_of,
    receive_into,
    sha256_precondition,
    soon,
)
from sbxguest.filewrite import AtomicWriter, Journal, WriteOptions
from sbxguest.largebody import length_of
from sbxguest.tree import Unpacker, pack
from sbxguest.tree.report import shown

_READ_CHUNK_BYTES = 512 * 1024
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")
_SECONDS = re.compile(r"(\d{1,10})(?:\.(\d{1,9}))?")


async def get_file(request: Request) -> Response:
    """GET, HEAD /v2/files?path= with Range: the content, its facts in headers."""
    path = path_of(request)
    reader = await in_thread(FileReader, path)
    found = reader.found
    headers = [
        ("accept-ranges", "bytes"),
        ("etag", f'"{found.st_ino:x}-{found.st_size:x}-{found.st_mtime_ns:x}"'),
        ("x-sbx-mode", f"{stat.S_IMODE(found.st_mode):04o}"),
        ("x-sbx-mtime-ns", str(found.st_mtime_ns)),
        ("x-sbx-size", str(found.st_size)),
    ]
    span = _range_of(request, found.st_size, headers[1][1])
    if span is None:
        reader.close()
        error = error_response(WireError(416, "bad_range", f"{shown(path)}: ends before that, at {found.st_size}"))
        end = ("content-range", f"bytes */{found.st_size}")
        return Response(416, error.body, error.content_type, (*headers, end, *error.headers))
    start, length = span
    is_part = length != found.st_size
    if is_part:
        headers.append(("content-range", f"bytes {start}-{start + length - 1}/{found.st_size}"))
    if request.method == "HEAD":
        reader.close()
        headers.append(("content-length", str(length)))
        return Response(206 if is_part else 200, _no_content(), headers=tuple(headers))
    if found.st_size == 0:
        # The kernel's own files (/proc, /sys) say 0 and have content.
        return Response(200, _whole(reader), headers=tuple(headers))
    headers.append(("content-length", str(length)))
    return Response(206 if is_part else 200, _part(reader, path, start, length), headers=tuple(headers))


def _range_of(request: Request, size_bytes: int, etag: str) -> tuple[int, int] | None:
    """(start, length) of the one range asked for, the whole without one, None when nothing of it exists."""
    match = _RANGE.fullmatch(request.headers.get("range", "").strip())
    is_stale = request.headers.get("if-range", etag) != etag
    # Several ranges, other units and broken ones may be answered by the whole (RFC 9110 §14.2).
    if match is None or is_stale or match.group(1) + match.group(2) == "":
        return 0, size_bytes
    first, last = match.groups()
    if not first:
        start = max(0, size_bytes - int(last))
        return (start, size_bytes - start) if int(last) and size_bytes else None
    start, end = int(first), min(int(last or size_bytes), size_bytes - 1)
    if last and int(last) < start:
        return 0, size_bytes
    return (start, end - start + 1) if start < size_bytes else None


async def _no_content() -> AsyncGenerator[bytes, None]:
    return
    yield b""


async def _whole(reader: FileReader) -> AsyncGenerator[bytes, None]:
    offset = 0
    try:
        while chunk := await in_thread(reader.read, offset, _READ_CHUNK_BYTES):
            offset += len(chunk)
            yield chunk
    finally:
        soon(reader.close)


async def _part(reader: FileReader, path: str, start: int, length: int) -> AsyncGenerator[bytes, None]:
    """Exactly `length` bytes from `start`; a file that shrank meanwhile ends the connection, never padded."""
    ahead: asyncio.Task[bytes] | None = None
    offset, end = start, start + length
    try:
        while offset < end:
            chunk = await (ahead or in_thread(reader.read, offset, min(_READ_CHUNK_BYTES, end - offset)))
            if not chunk:
                raise WireError(409, "changed", f"{shown(path)}: became shorter while it was read")
            offset += len(chunk)
            ahead = None
            if offset < end:
                size_bytes = min(_READ_CHUNK_BYTES, end - offset)
                ahead = asyncio.create_task(in_thread(reader.read, offset, size_bytes))
            yield chunk
    finally:
        if ahead is not None:
            ahead.cancel()
        soon(reader.close)


async def put_file(request: Request) -> Response:
    """PUT /v2/files?path=&mode=&mtime=&if_sha256=&parents=1: the body becomes the file's content, all or nothing."""
    guest, path = request.guest, path_of(request)
    options = _write_options(request)
    writer = await in_thread(AtomicWriter, path, options, owner_of(guest.state.settings), journal_of(guest))
    try:
        await receive_into(writer, request, in_place=True)
        await in_thread(writer.commit)
        return json_response({"path": request.query["path"], "size_bytes": writer.size_bytes}, status=201)
    finally:
        await aborted(writer)


def _write_options(request: Request) -> WriteOptions:
    query = request.query
    length = request.headers.get("content-length", "")
    return WriteOptions(
        mode=octal(query.get("mode", "")),
        mtime_ns=_mtime_ns(query.get("mtime", "")),
        if_sha256=sha256_precondition(query.get("if_sha256", "")),
        has_parents=request.flag("parents"),
        size_bytes=length_of(length) if length else None,
    )


def _mtime_ns(text: str) -> int | None:
    if not text:
        return None
    match = _SECONDS.fullmatch(text)
    if match is None:
        raise WireError(400, "bad_query", "`mtime` must be seconds since 1970, like 1700000000.25")
    return int(match.group(1)) * 1_000_000_000 + int((match.group(2) or "").ljust(9, "0"))


async def get_tree(request: Request) -> Response:
    """GET /v2/files/tar?path=: what is below a folder, as a tar stream."""
    path = path_of(request)
    pieces = pack(path)
    first = await in_thread(next, pieces, b"")
    return Response(200, _pieces(first, pieces), "application/x-tar")


async def _pieces(first: bytes, pieces: Iterator[bytes]) -> AsyncGenerator[bytes, None]:
    piece = first
    while piece:
        yield piece
        piece = await in_thread(next, pieces, b"")


async def put_tree(request: Request) -> Response:
    """PUT /v2/files/tar?path=&parents=1: unpack a tar stream into a folder, which is made if it is missing."""
    guest, path = request.guest, path_of(request)
    owner, journal = owner_of(guest.state.settings), journal_of(guest)
    has_parents = request.flag("parents")
    unpacker = await in_thread(_unpacker, path, owner, journal, has_parents)
    try:
        await receive_into(unpacker, request)
        report = await in_thread(unpacker.commit)
    finally:
        await aborted(unpacker)
    problems = [{"path": problem.path, "code": problem.code} for problem in report.problems]
    counts = {"files": report.files, "folders": report.folders, "links": report.links, "size_bytes": report.size_bytes}
    return json_response({**counts, "problems": problems, "problem_count": report.problem_count})


def _unpacker(path: str, owner: Owner, journal: Journal, has_parents: bool) -> Unpacker:
    with translated(path):
        if has_parents:
            make_parents(path, owner)
        if not os.path.isdir(path):
            os.mkdir(path)
            owner.apply(path)
        return Unpacker(path, own=owner.apply, note=journal.add, forget=journal.drop)


ROUTES = (
    Route("GET", "/v2/files", get_file),
    Route("PUT", "/v2/files", put_file),
    Route("GET", "/v2/files/tar", get_tree),
    Route("PUT", "/v2/files/tar", put_tree),
    *fileop.ROUTES,
)
