"""`/v2/tree`: a folder as one end of a sync. What is decided is decided at the other end."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from sbxguest import wire
from sbxguest.app import Request, Response, Route, WireError, json_response
from sbxguest.filepool import Sink, aborted, in_thread, receive_into
from sbxguest.opentree import OpenTree, trees
from sbxguest.tree.batch import MAX_BYTES, MAX_OPS, Batch
from sbxguest.tree.blobs import BlobWriter
from sbxguest.tree.codec import (
    ACCEPT_HEADER,
    CODEC_HEADER,
    CODECS,
    ZEROS,
    ZEROS_ZSTD,
    ZSTD,
    Opener,
    Packer,
    opener_of,
)
from sbxguest.tree.entry import DIGEST_BYTES, DIGEST_NAME, BadRecord, check_path, from_text, to_text
from sbxguest.tree.frames import INLINE_BYTES, PACKED_BYTES
from sbxguest.tree.scan import ScanOptions
from sbxguest.treestream import Stop, Wanted, beating, content_pieces, manifest_pieces, result_pieces

_BATCH_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_DIGEST = re.compile(rf"[0-9a-f]{{{2 * DIGEST_BYTES}}}")
_MAX_SCAN_BYTES = 16 * wire.MIB
_MAX_READS = 10_000


async def hello(request: Request) -> Response:
    """`GET /v2/tree/hello?path=`: which folder this is, and what can be done with it."""
    tree = await trees.find(request)
    state = request.guest.state
    said = await in_thread(_facts, tree)
    # A copy of a sandbox has the folder of the first, and a name of its own.
    guest_id = f"{state.identity.id}.{tree.id}" if state.identity.id else tree.id
    return json_response({"guest_id": guest_id, "epoch": state.boot_id, "feed": tree.feed_kind, **said})


def _facts(tree: OpenTree) -> dict[str, object]:
    room = os.fstatvfs(tree.root.fd)
    return {
        "root": tree.root.identity,
        "path": to_text(os.fsencode(tree.root.path)),
        "traits": {"is_case_sensitive": tree.stage.is_case_sensitive},
        "free_bytes": room.f_bavail * room.f_frsize,
        "free_inodes": room.f_favail if room.f_files else None,
        "limits": {
            "packed_bytes": PACKED_BYTES,
            "inline_bytes": INLINE_BYTES,
            "batch_bytes": MAX_BYTES,
            "operations": MAX_OPS,
            "reads": _MAX_READS,
        },
        "digest": DIGEST_NAME,
        "codecs": list(CODECS),
        "features": ["provisional"],
    }


async def scan(request: Request) -> Response:
    """`POST /v2/tree/scan` {paths, digests, deep, cursor, ignore: {folder: [text, …]}}: a manifest."""
    tree = await trees.find(request)
    body = await request.json(limit_bytes=_MAX_SCAN_BYTES)
    paths = [_path(text) for text in _texts(body.get("paths"), "paths")]
    stop = Stop()
    tree.leave_out(_ignore_texts(body.get("ignore", {})))
    options = ScanOptions(
        has_digests=body.get("digests") is not False,
        is_deep=body.get("deep") is not False,
        texts=tree.left_out.read,
        check=stop.check,
    )
    # Where nobody asks for changes, taking note of them would cost as much as making them.
    cursor = "" if body.get("cursor") is False else await (await tree.feed()).cursor()
    return _stream(beating(manifest_pieces(tree, paths, options, cursor), stop), request)


def _ignore_texts(said: Any) -> dict[bytes, tuple[bytes, ...]]:
    if not isinstance(said, dict):
        raise WireError(400, "bad_request", "`ignore` must be an object of lists of texts")
    return {_path(folder): tuple(map(_bytes, _texts(texts, "ignore"))) for folder, texts in said.items()}


def _texts(said: Any, name: str) -> list[str]:
    if not isinstance(said, list) or not all(isinstance(text, str) for text in said):
        raise WireError(400, "bad_request", f"`{name}` must be a list of texts")
    return said


def _bytes(text: str) -> bytes:
    try:
        return from_text(text)
    except BadRecord as exc:
        raise WireError(400, "bad_path", exc.message) from exc


def _path(text: str) -> bytes:
    path = _bytes(text)
    try:
        if path:
            check_path(path)
    except BadRecord as exc:
        raise WireError(400, "bad_path", exc.message) from exc
    return path


async def batch(request: Request) -> Response:
    """`POST /v2/tree/batch/{id}`: operations in, a result for each out. Nothing is done before the batch is whole."""
    tree = await trees.find(request)
    batch_id = request.params["id"]
    if not _BATCH_ID.fullmatch(batch_id):
        raise WireError(400, "bad_request", "the id of a batch is up to 64 letters, digits, `-` and `_`")
    _require_boot(request)
    opener = _opener(request)
    incoming = await in_thread(Batch, tree.applier, tree.blobs, batch_id)
    is_whole = False
    try:
        await receive_into(incoming if opener is None else _Opening(opener, incoming), request)
        await in_thread(incoming.check)
        is_whole = True
    finally:
        if not is_whole:
            await aborted(incoming)
    results = _results(tree, incoming, batch_id)
    # What was never begun has no end that runs when it is let go of.
    await anext(results)
    return _stream(results, request)


async def _results(tree: OpenTree, incoming: Batch, batch_id: str) -> AsyncGenerator[bytes, None]:
    """Nothing first; then the results, once it is this request's turn."""
    has_begun = False
    try:
        yield b""
        async with tree.turn(batch_id):
            has_begun, stop = True, Stop()
            async with aclosing(beating(result_pieces(tree, incoming, stop), stop)) as pieces:
                async for piece in pieces:
                    yield piece
    finally:
        # Once it has begun, the thread that is at it ends it.
        if not has_begun:
            await aborted(incoming)


class _Opening:
    """Unpacks what comes for a sink."""

    def __init__(self, opener: Opener, sink: Sink) -> None:
        self._opener = opener
        self._sink = sink

    def write(self, chunks: list[bytes]) -> None:
        """Take the next bytes."""
        for piece in self._opener.open(chunks):
            self._sink.write([piece])

    def abort(self) -> None:
        """Leave nothing half-written."""
        self._sink.abort()


def _opener(request: Request) -> Opener | None:
    """What unpacks a request's body; None if nothing has to."""
    codec = request.headers.get(CODEC_HEADER, "")
    opener = opener_of(codec)
    if codec and opener is None:
        raise WireError(400, "bad_request", f"this guest cannot read `{codec[:40]}`", details={"codecs": list(CODECS)})
    return opener


def _require_boot(request: Request) -> None:
    """What changes files must say which boot it means."""
    if wire.BOOT_HEADER not in request.headers:
        raise WireError(400, "bad_request", f"a change must say in {wire.BOOT_HEADER} which boot it is for")


async def head_blob(request: Request) -> Response:
    """`HEAD /v2/tree/blob/{digest}`: how much of a large content is here, in `x-sbx-offset` and `x-sbx-complete`."""
    tree = await trees.find(request)
    offset, is_complete = await in_thread(tree.blobs.state, _digest(request))
    headers = (("x-sbx-offset", str(offset)), ("x-sbx-complete", "1" if is_complete else "0"))
    return Response(200, headers=headers)


async def put_blob(request: Request) -> Response:
    """`PUT /v2/tree/blob/{digest}?offset=&size=&provisional=`: more of a large content; a cut keeps what arrived."""
    tree = await trees.find(request)
    _require_boot(request)
    opener = _opener(request)
    writer = await in_thread(_open_blob, tree, request)
    try:
        sink = writer if opener is None else _Opening(opener, writer)
        await receive_into(sink, request, keeps_rest=True, in_place=opener is None)
    finally:
        await aborted(writer)
    offset, is_complete = await in_thread(tree.blobs.close, writer)
    return json_response({"offset": offset, "complete": is_complete})


def _open_blob(tree: OpenTree, request: Request) -> BlobWriter:
    return tree.blobs.open(
        _digest(request),
        offset=request.whole("offset", 0),
        size_bytes=request.whole("size", 0),
        is_provisional=request.query.get("provisional") == "1",
        is_sparse=request.headers.get(CODEC_HEADER, "") in (ZEROS, ZEROS_ZSTD),
    )


def _digest(request: Request) -> bytes:
    text = request.params["digest"]
    if not _DIGEST.fullmatch(text):
        raise WireError(400, "bad_request", f"a content is named by {2 * DIGEST_BYTES} hex digits")
    return bytes.fromhex(text)


async def read(request: Request) -> Response:
    """`POST /v2/tree/read` {files: [{path, digest?}]}: contents, each followed by its result."""
    tree = await trees.find(request)
    files = (await request.json()).get("files")
    if not isinstance(files, list) or len(files) > _MAX_READS:
        raise WireError(400, "bad_request", f"`files` must be a list of at most {_MAX_READS}")
    stop = Stop()
    return _stream(beating(content_pieces(tree, [_wanted(one) for one in files], stop), stop), request)


def _stream(pieces: AsyncGenerator[bytes, None], request: Request) -> Response:
    """An answer in pieces, packed if that is asked for."""
    if request.headers.get(ACCEPT_HEADER) != ZSTD:
        return Response(200, pieces, wire.FRAMES_TYPE)
    return Response(200, _packed(pieces), wire.FRAMES_TYPE, headers=((CODEC_HEADER, ZSTD),))


async def _packed(pieces: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    packer = Packer()
    async with aclosing(pieces):
        async for piece in pieces:
            # A heartbeat that is held back is none.
            yield await in_thread(packer.feed_now, piece)
        yield packer.end()


def _wanted(said: Any) -> Wanted:
    path, digest = (said.get("path"), said.get("digest", "")) if isinstance(said, dict) else (None, "")
    if not isinstance(path, str) or not path or not (digest == "" or _DIGEST.fullmatch(str(digest))):
        raise WireError(400, "bad_request", "a file needs a path, and may have a digest")
    return _path(path), bytes.fromhex(digest)


async def changes(request: Request) -> Response:
    """`GET /v2/tree/changes?cursor=&wait=`: paths below which something changed."""
    tree = await trees.find(request)
    wait_s = request.number("wait", 0, high=wire.MAX_WAIT_S)
    found = await (await tree.feed()).changes(request.query.get("cursor", ""), wait_s)
    paths = [to_text(path) for path in found.paths]
    return json_response({"cursor": found.cursor, "paths": paths, "must_rescan": found.must_rescan})


ROUTES = (
    Route("GET", "/v2/tree/hello", hello),
    Route("POST", "/v2/tree/scan", scan),
    Route("POST", "/v2/tree/batch/{id}", batch),
    Route("HEAD", "/v2/tree/blob/{digest}", head_blob),
    Route("PUT", "/v2/tree/blob/{digest}", put_blob),
    Route("POST", "/v2/tree/read", read),
    Route("GET", "/v2/tree/changes", changes),
)
