"""`POST /v2/files/op`: one operation per request, `{op, path, …}`. `list` streams lines, others answer an object."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

from sbxguest import fileverbs
from sbxguest.app import Request, Response, Route, WireError, json_response
from sbxguest.fileops import FileError, resolve
from sbxguest.filepool import in_thread, journal_of, octal, owner_of, sha256_precondition
from sbxguest.fileverbs import Scene
from sbxguest.filewrite import AtomicWriter, WriteOptions
from sbxguest.tree.report import shown

_ENTRIES_PER_PIECE = 500
_MAX_ENTRIES = 2**53


class _Call:
    """The fields of one operation, each checked as it is taken."""

    def __init__(self, fields: dict[str, Any], scene: Scene) -> None:
        self._fields = fields
        self.scene = scene

    def path(self, name: str = "path", *, follows: bool = True) -> str:
        """A required path, absolute. `follows`: whether the operation follows a link it names."""
        value = self._fields.get(name, "")
        if not isinstance(value, str):
            raise WireError(400, "bad_request", f"`{name}` must be a string")
        try:
            return resolve(value, self.scene.workdir, self.scene.root, follows=follows)
        except FileError as exc:
            raise WireError(exc.status, exc.code, f"`{name}`: {exc.message}") from exc

    def flag(self, name: str) -> bool:
        """An optional boolean, false by default."""
        value = self._fields.get(name, False)
        if not isinstance(value, bool):
            raise WireError(400, "bad_request", f"`{name}` must be true or false")
        return value

    def count(self, name: str, default: int) -> int:
        """An optional whole number ≥ 0."""
        value = self._fields.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise WireError(400, "bad_request", f"`{name}` must be a whole number")
        return value

    def mode(self) -> int | None:
        """Optional permission bits, as a string of octal digits."""
        value = self._fields.get("mode", "")
        if not isinstance(value, str):
            raise WireError(400, "bad_request", "`mode` must be a string of octal digits")
        return octal(value)

    def digest(self) -> str:
        """An optional `if_sha256`."""
        value = self._fields.get("if_sha256", "")
        if not isinstance(value, str):
            raise WireError(400, "bad_request", "`if_sha256` must be a string")
        return sha256_precondition(value)


async def _mkdir(call: _Call) -> Response:
    path, mode, has_parents = call.path(), call.mode(), call.flag("parents")
    await in_thread(lambda: fileverbs.make_directory(call.scene, path, mode=mode, has_parents=has_parents))
    return json_response({})


async def _rm(call: _Call) -> Response:
    path, is_recursive, is_forced = call.path(follows=False), call.flag("recursive"), call.flag("force")
    consent = call.flag("even_workdir")
    await in_thread(
        lambda: fileverbs.remove(call.scene, path, is_recursive=is_recursive, is_forced=is_forced, has_consent=consent)
    )
    return json_response({})


async def _mv(call: _Call) -> Response:
    path, to = call.path(follows=False), call.path("to", follows=False)
    is_exclusive, has_parents = call.flag("no_overwrite"), call.flag("parents")
    await in_thread(lambda: fileverbs.move(call.scene, path, to, is_exclusive=is_exclusive, has_parents=has_parents))
    return json_response({})


async def _cp(call: _Call) -> Response:
    path, to, is_exclusive, has_parents = call.path(), call.path("to"), call.flag("no_overwrite"), call.flag("parents")
    is_recursive = call.flag("recursive")
    left_out = await in_thread(
        lambda: fileverbs.copy(
            call.scene, path, to, is_recursive=is_recursive, is_exclusive=is_exclusive, has_parents=has_parents
        )
    )
    return json_response({"left_out": left_out[:100], "left_out_count": len(left_out)})


async def _stat(call: _Call) -> Response:
    follow = call.flag("follow")
    path = call.path(follows=follow)
    seen = await in_thread(lambda: fileverbs.look(path, follow=follow))
    if seen is None:
        raise WireError(404, "file_not_found", f"{shown(path)}: no such file or directory")
    return json_response(seen)


async def _check(call: _Call) -> Response:
    """Whether an upload would be taken, asked before its bytes travel. What is true now may be false by then."""
    path, size_bytes, digest, has_parents = (
        call.path(),
        call.count("size_bytes", 0),
        call.digest(),
        call.flag("parents"),
    )
    options = WriteOptions(if_sha256=digest, size_bytes=size_bytes)
    try:
        await in_thread(lambda: AtomicWriter(path, options, call.scene.owner, call.scene.journal).abort())
    except WireError as exc:
        if exc.code != "file_not_found" or not has_parents:
            raise
    return json_response({})


async def _exists(call: _Call) -> Response:
    follow = call.flag("follow")
    path = call.path(follows=follow)
    seen = await in_thread(lambda: fileverbs.look(path, follow=follow))
    return json_response({"exists": seen is not None, "kind": "" if seen is None else seen["kind"]})


async def _list(call: _Call) -> Response:
    """Lines of JSON, in the disk's order: entries, then `{"end": true, "count", "truncated"}`, else it was cut."""
    path, is_recursive, limit = call.path(), call.flag("recursive"), call.count("limit", _MAX_ENTRIES)
    entries = fileverbs.walk(path, is_recursive=is_recursive)
    # The first lines before the head: a folder that is not there is an error, not an empty listing.
    first = await in_thread(_some_lines, entries, min(_ENTRIES_PER_PIECE, limit))
    return Response(200, _lines(entries, first, limit), "application/x-ndjson")


def _some_lines(entries: Iterator[dict[str, object]], at_most: int) -> tuple[int, bytes]:
    lines = [json.dumps(one, separators=(",", ":")) + "\n" for one in itertools.islice(entries, at_most)]
    return len(lines), "".join(lines).encode()


async def _lines(
    entries: Iterator[dict[str, object]], first: tuple[int, bytes], limit: int
) -> AsyncGenerator[bytes, None]:
    count, piece = first
    total = count
    while count == _ENTRIES_PER_PIECE:
        yield piece
        count, piece = await in_thread(_some_lines, entries, min(_ENTRIES_PER_PIECE, limit - total))
        total += count
    is_truncated = total == limit and (await in_thread(_some_lines, entries, 1))[0] > 0
    yield piece + json.dumps({"end": True, "count": total, "truncated": is_truncated}).encode() + b"\n"


@dataclass(frozen=True, slots=True)
class _Op:
    run: Callable[[_Call], Awaitable[Response]]
    fields: frozenset[str]


def _op(run: Callable[[_Call], Awaitable[Response]], *fields: str) -> _Op:
    return _Op(run, frozenset(("op", "path", *fields)))


_OPS = {
    "mkdir": _op(_mkdir, "parents", "mode"),
    "rm": _op(_rm, "recursive", "force", "even_workdir"),
    "mv": _op(_mv, "to", "no_overwrite", "parents"),
    "cp": _op(_cp, "to", "recursive", "no_overwrite", "parents"),
    "stat": _op(_stat, "follow"),
    "exists": _op(_exists, "follow"),
    "check": _op(_check, "size_bytes", "if_sha256", "parents"),
    "list": _op(_list, "recursive", "limit"),
}


async def post_op(request: Request) -> Response:
    """POST /v2/files/op. A long one stops half-way when its client goes away."""
    fields = await request.json()
    op = _OPS.get(str(fields.get("op", "")))
    if op is None:
        raise WireError(400, "bad_request", f"`op` must be one of {', '.join(_OPS)}")
    if strange := sorted(set(fields) - op.fields):
        raise WireError(400, "bad_request", f"`{fields['op']}` has no field {ascii(strange[0])[:80]}")
    guest = request.guest
    stop = threading.Event()
    settings = guest.state.settings
    scene = Scene(guest.state.workdir, settings.root, owner_of(settings), journal_of(guest), stop)
    run = asyncio.ensure_future(op.run(_Call(fields, scene)))
    gone = asyncio.ensure_future(request.until_disconnect())
    try:
        await asyncio.wait((run, gone), return_when=asyncio.FIRST_COMPLETED)
        if not run.done():
            stop.set()
        return await run
    finally:
        stop.set()
        gone.cancel()
        run.cancel()


ROUTES = (Route("POST", "/v2/files/op", post_op),)
