"""`GET /v2/logs`: the sandbox's own log as JSON lines.

The first line says `{"log": ID, "cursor": N, "total": N}`: which log this is, where reading begins, and where the log
ends now. Then each piece is a line: `{"cursor", "at_ms", "job", "channel", "text"}`, or with `lost_bytes` in place of
the text where something is no longer kept. A cursor is the position behind its line. Channel 0 is the guest's own: its
text is lines of JSON, one for each event, `{"event", "job", …}`. Bytes that are no UTF-8 are lone surrogates.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator

from sbxguest import wire
from sbxguest.app import Request, Response, Route
from sbxguest.guestlog import GuestLog, Piece

_BATCH_BYTES = 128 * wire.KIB
# What comes meanwhile travels together.
_GATHER_S = 0.02


async def logs(request: Request) -> Response:
    """`GET /v2/logs[?log=ID&cursor=N][&since_ms=][&tail=N][&follow=1]`; see above.

    A cursor of another log begins at the beginning. A stream that follows is silent while nothing is said: watching
    must not keep a sandbox awake, and who has lost it comes again with its cursor.
    """
    log = request.guest.log
    cursor = request.whole("cursor", 0) if request.query.get("log") == log.id else 0
    if since_ms := request.whole("since_ms", 0):
        cursor = max(cursor, log.timeline.since(since_ms))
    if tail := request.query.get("tail"):
        cursor = max(cursor, log.last_lines(request.whole("tail", 0)) if tail != "0" else log.total)
    lines = _lines(log, min(cursor, log.total), is_following=request.flag("follow"))
    return Response(200, lines, "application/x-ndjson", (("cache-control", "no-store"),))


async def _lines(log: GuestLog, cursor: int, *, is_following: bool) -> AsyncGenerator[bytes, None]:
    yield _line({"log": log.id, "cursor": cursor, "total": log.total})
    end = None if is_following else log.total
    while end is None or cursor < end:
        batch = [*log.read(cursor, _BATCH_BYTES)]
        if batch:
            cursor = batch[-1].end
            yield b"".join(map(_told, batch))
        elif end is not None:
            return
        else:
            await log.changed()
            await asyncio.sleep(_GATHER_S)


def _told(piece: Piece) -> bytes:
    told: dict[str, object] = {"cursor": piece.end, "at_ms": piece.at_ms, "job": piece.job, "channel": piece.channel}
    if piece.lost_bytes:
        return _line({**told, "lost_bytes": piece.lost_bytes})
    return _line({**told, "text": piece.data.decode("utf-8", "surrogateescape")})


def _line(value: dict[str, object]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


ROUTES = (Route("GET", "/v2/logs", logs),)
