"""Following a body's framing without keeping the body: how many of the bytes at hand still belong to it."""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import Protocol, assert_never

from sbxtui.core.heads import BadMessage

_MAX_LINE_BYTES = 4_096
_MAX_TRAILER_BYTES = 16_384
# Extensions are passed on; a size of more than 15 digits could wrap in somebody's integer.
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})(?:[ \t]*;[\t\x20-\x7e\x80-\xff]*)?")


class Framing(Protocol):
    """Where a body ends."""

    @property
    def is_done(self) -> bool:
        """Whether the whole body has been fed."""
        ...

    @property
    def wants(self) -> int:
        """Never read more than this at once; reading on would take bytes of the next message (0: no limit known)."""
        ...

    def feed(self, data: bytes) -> int:
        """Take what belongs to the body; how many bytes that were.

        Raises:
            BadMessage: The framing is broken.
        """
        ...


class LengthFraming:
    """A body of known size."""

    def __init__(self, length: int) -> None:
        self._left = length

    @property
    def is_done(self) -> bool:
        """See `Framing`."""
        return self._left == 0

    @property
    def wants(self) -> int:
        """See `Framing`."""
        return self._left

    def feed(self, data: bytes) -> int:
        """See `Framing`."""
        taken = min(self._left, len(data))
        self._left -= taken
        return taken


class CloseFraming:
    """A body that ends with its connection."""

    is_done = False
    wants = 0

    def feed(self, data: bytes) -> int:
        """See `Framing`."""
        return len(data)


class _Line(Enum):
    SIZE = auto()
    DATA_END = auto()
    TRAILER = auto()


class ChunkedFraming:
    """A chunked body, trailers included. Strict: CRLF only, no blanks around sizes."""

    wants = 0

    def __init__(self) -> None:
        self.is_done = False
        self._line = bytearray()
        self._data_left = 0
        self._expects = _Line.SIZE
        self._trailer_bytes = 0

    def feed(self, data: bytes) -> int:
        """See `Framing`."""
        at = 0
        while at < len(data) and not self.is_done:
            if self._data_left:
                step = min(self._data_left, len(data) - at)
                self._data_left -= step
                at += step
            else:
                at = self._feed_line(data, at)
        return at

    def _feed_line(self, data: bytes, at: int) -> int:
        end = data.find(b"\n", at)
        self._line += data[at:] if end < 0 else data[at : end + 1]
        if len(self._line) > _MAX_LINE_BYTES:
            raise BadMessage(400, "a chunk line is too long")
        if end < 0:
            return len(data)
        line = bytes(self._line)
        self._line.clear()
        if not line.endswith(b"\r\n") or b"\r" in line[:-2] or b"\0" in line:
            raise BadMessage(400, "malformed chunk line")
        self._end_line(line[:-2])
        return end + 1

    def _end_line(self, line: bytes) -> None:
        match self._expects:
            case _Line.SIZE:
                found = _CHUNK_SIZE.fullmatch(line)
                if found is None:
                    raise BadMessage(400, "malformed chunk size")
                self._data_left = int(found[1], 16)
                self._expects = _Line.DATA_END if self._data_left else _Line.TRAILER
            case _Line.DATA_END:
                if line:
                    raise BadMessage(400, "a chunk is longer than its size")
                self._expects = _Line.SIZE
            case _Line.TRAILER:
                self._trailer_bytes += len(line)
                if self._trailer_bytes > _MAX_TRAILER_BYTES:
                    raise BadMessage(400, "the trailer is too long")
                self.is_done = not line
            case _:
                assert_never(self._expects)


def framing_of(kind: int | str | None) -> Framing:
    """The follower of a body: a length, `close`, or chunked (also None, as requests say it)."""
    if isinstance(kind, int):
        return LengthFraming(kind)
    return CloseFraming() if kind == "close" else ChunkedFraming()
