"""StartLiveTail: what comes new into log groups, once a second, as an event stream for as long as somebody reads it.

What is put late, and is older than what was seen, is new, too. A session ends after three hours, as on the platform.
"""

from __future__ import annotations

import asyncio
import binascii
import json
import struct
import time
import uuid
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sbxtui.localcloud.logpages import START, Place, place_of, position_of, read_lines
from sbxtui.localcloud.logstore import Line, LogStore, Stream

CONTENT_TYPE = "application/vnd.amazon.eventstream"
SESSION_S = 3 * 3600
# More than these of one look are left out, and the update says so.
MOST_EVENTS = 500
_EVERY_S = 1.0
_TEXT = 7
_TIMED_OUT = {"message": "The live tail session has reached its maximum duration."}


@dataclass(slots=True)
class _Seen:
    """How far a stream was read: in its files, and of what clients put there. `marks` tell whether there is more."""

    place: Place = START
    put: int = 0
    marks: tuple[object, ...] = ()


@dataclass(slots=True)
class LiveTail:
    """One session.

    Args:
        asked: The request, which the session's start repeats.
        streams: Those that are wanted, as they are now.
        store: What clients put.
        pattern: A word or phrase that each line must hold.
    """

    asked: Mapping[str, Any]
    streams: Callable[[], Sequence[Stream]]
    store: LogStore
    pattern: str
    _seen: dict[tuple[str, str], _Seen] = field(default_factory=dict)

    async def events(self) -> AsyncGenerator[bytes, None]:
        """The stream's messages; the first ones come at once."""
        ends_at = time.monotonic() + SESSION_S
        yield message({":event-type": "initial-response"}, {})
        # What is there by now is old.
        await asyncio.to_thread(self._news)
        start = {**self.asked, "requestId": str(uuid.uuid4()), "sessionId": str(uuid.uuid4())}
        yield message({":event-type": "sessionStart"}, start)
        while time.monotonic() < ends_at:
            news = await asyncio.to_thread(self._news)
            sampled = {"sampled": len(news) > MOST_EVENTS}
            update = {"sessionMetadata": sampled, "sessionResults": news[:MOST_EVENTS]}
            yield message({":event-type": "sessionUpdate"}, update)
            await asyncio.sleep(_EVERY_S)
        yield message({":exception-type": "SessionTimeoutException"}, _TIMED_OUT)

    def _news(self) -> list[dict[str, Any]]:
        """What came since the last look. Blocking."""
        found: list[tuple[Line, Stream]] = []
        for stream in self.streams():
            seen = self._seen.setdefault((stream.group, stream.name), _Seen())
            found += [(line, stream) for line in self._news_of(stream, seen) if self.pattern in line.text]
        found.sort(key=lambda one: one[0].at_ms)
        return [_event(line, stream) for line, stream in found]

    def _news_of(self, stream: Stream, seen: _Seen) -> list[Line]:
        marks = tuple(_mark(file) for file in (*stream.files, self.store.events_file(stream.group, stream.name)))
        if marks == seen.marks:
            return []
        seen.marks = marks
        printed = read_lines(stream.files, stream.began_at)
        begin, seen.place = position_of(seen.place, printed), place_of(printed, len(printed))
        put = self.store.lines(stream.group, stream.name)
        first, seen.put = seen.put, len(put)
        return printed[begin:] + put[first:]


def message(kind: Mapping[str, str], document: Mapping[str, Any]) -> bytes:
    """One message of an event stream: its headers, its JSON, and the checksums of both."""
    type_ = "exception" if ":exception-type" in kind else "event"
    kinds = {":message-type": type_, ":content-type": "application/json", **kind}
    headers = b"".join(_header(name, value) for name, value in kinds.items())
    body = json.dumps(document).encode()
    prelude = struct.pack("!II", 16 + len(headers) + len(body), len(headers))
    checked = prelude + struct.pack("!I", binascii.crc32(prelude)) + headers + body
    return checked + struct.pack("!I", binascii.crc32(checked))


def _header(name: str, value: str) -> bytes:
    return struct.pack("!B", len(name)) + name.encode() + struct.pack("!BH", _TEXT, len(value)) + value.encode()


def _event(line: Line, stream: Stream) -> dict[str, Any]:
    return {
        "logGroupIdentifier": stream.group,
        "logStreamName": stream.name,
        "message": line.text,
        "timestamp": line.at_ms,
        "ingestionTime": line.at_ms,
    }


def _mark(file: Path) -> tuple[int, int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return (found.st_ino, found.st_size, found.st_mtime_ns)
