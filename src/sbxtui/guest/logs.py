"""`/v2/logs` on the host: a sandbox's own log, checked."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from datetime import UTC, datetime
from typing import Any

from sbxguest import wire
from sbxtui.core.errors import GuestUnreachable, SbxError, Unsupported
from sbxtui.core.logs import LogChunk
from sbxtui.core.text import harmless_line
from sbxtui.core.values import dataclass
from sbxtui.guest.faults import translated
from sbxtui.guest.filewire import as_object, lines, whole
from sbxtui.guest.http1 import Patience
from sbxtui.guest.transport import Transport

_DOING = "reading its log"
# A stream that follows is silent for as long as the sandbox is: no time is too long.
_PATIENCE = Patience(answer_s=float(10**9))
_CHANNELS = {wire.Channel.NONE: "event", wire.Channel.OUT: "out", wire.Channel.ERR: "err", wire.Channel.PTY: "pty"}
_JOB_ID_MAX = 200


@dataclass(frozen=True, slots=True)
class Place:
    """Where a reader is: a position in one log, which ended at `total` when it was asked for.

    Another start of the sandbox has another log.
    """

    log: str = ""
    cursor: int = 0
    total: int = 0


class GuestLogs:
    """The log of one guest."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def read(
        self, place: Place, *, is_following: bool, since: datetime | None = None, tail: int | None = None
    ) -> AsyncGenerator[Place | LogChunk, None]:
        """First where reading begins, then what was said from there on; when following, until the connection ends.

        Args:
            place: Where the last look ended; in another log, reading begins at the beginning.
            is_following: Wait for more.
            since: Leave out what is older.
            tail: Leave out all but about so many lines, and none of those.

        Raises:
            GuestUnreachable: The connection broke, or brought what cannot be read.
            Unsupported: The image's guest keeps no such log.
        """
        query: dict[str, str | int] = {"log": place.log, "cursor": place.cursor} if place.log else {}
        if is_following:
            query["follow"] = 1
        if since is not None:
            query["since_ms"] = max(1, int(since.timestamp() * 1000))
        if tail is not None:
            query["tail"] = tail
        with translated(_DOING):
            async with self._transport.stream("GET", "/v2/logs", query=query, patience=_PATIENCE) as answer:
                try:
                    await self._transport.check(answer, _DOING)
                except Unsupported as exc:
                    raise _too_old() from exc
                async for line in lines(answer.pieces()):
                    yield _decoded(as_object(line))


def _too_old() -> SbxError:
    return Unsupported(
        "this image's guest keeps no log of the sandbox as a whole",
        hint="`sbx output NAME JOB` prints one job's; rebuild the image for the rest",
    )


def _decoded(told: Mapping[str, Any]) -> Place | LogChunk:
    cursor = whole(told, "cursor")
    if isinstance(told.get("log"), str):
        return Place(harmless_line(str(told["log"]), limit=64), cursor, whole(told, "total"))
    at = _instant(told.get("at_ms"))
    job = harmless_line(str(told.get("job") or ""), limit=_JOB_ID_MAX)
    if lost := told.get("lost_bytes"):
        return LogChunk(cursor, at, job, lost_bytes=lost if isinstance(lost, int) and lost > 0 else 1)
    channel = _CHANNELS.get(told.get("channel", -1))
    text = told.get("text")
    if channel is None or not isinstance(text, str):
        raise GuestUnreachable(f"{_DOING}: the guest's answer makes no sense")
    data = text.encode("utf-8", "surrogateescape" if _is_escaped(text) else "replace")
    return LogChunk(cursor, at, job, channel, data)


def _is_escaped(text: str) -> bool:
    try:
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True


def _instant(value: object) -> datetime:
    try:
        return datetime.fromtimestamp(float(value) / 1000 if isinstance(value, int) else 0.0, UTC)
    except (ValueError, OverflowError, OSError):
        return datetime.fromtimestamp(0, UTC)
