"""Which job said which bytes when, in order, without a copy of any of them.

A span is a stretch of one job's log and the moment it came in; the bytes stay in that log. A position counts the bytes
that all jobs ever said, so that one number is where any reader is. The file (init keeps it, like the logs):

    0        fixed head: magic, id of this timeline
    64       count of spans ever
    72       total: the position behind the last span
    4 KiB    ring of spans: position, instant in ms, cursor in the job's log, key of the job

A job that goes on within `_MERGE_MS` only makes its last span longer: that is one store of eight bytes.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass

SLOTS = 64 * 1024

_MAGIC = b"sbxtime1"
_FIXED = struct.Struct("<8s16s")
_COUNT_AT = 64
_TOTAL_AT = 72
_SPANS_AT = 4096
_NUMBER = struct.Struct("<Q")
_SPAN = struct.Struct("<QQQQ")
_MERGE_MS = 10
_SIZE_BYTES = _SPANS_AT + SLOTS * _SPAN.size


@dataclass(frozen=True, slots=True)
class Span:
    """`length` bytes of the log of the job `key`, from its cursor `start` on, that came in at `at_ms`."""

    position: int
    at_ms: int
    start: int
    key: int
    length: int


class Timeline:
    """The timeline over its file; not safe for two writers."""

    def __init__(self, fd: int) -> None:
        """Open a timeline that `create` made, also one whose writer was killed.

        Raises:
            ValueError: The file is no timeline.
        """
        self.fd = fd
        self._map = mmap.mmap(fd, _SIZE_BYTES)
        magic, mark = _FIXED.unpack_from(self._map, 0)
        if magic != _MAGIC:
            raise ValueError("not a timeline")
        self.id = mark.hex()
        self._count: int = _NUMBER.unpack_from(self._map, _COUNT_AT)[0]
        self.total: int = _NUMBER.unpack_from(self._map, _TOTAL_AT)[0]
        # The span that may still grow: its job, where in that job's log it ends, and when it began.
        self._key, self._end, self._at_ms = -1, 0, 0

    @classmethod
    def create(cls) -> Timeline:
        """A new, empty one."""
        fd = os.memfd_create("sbx-timeline", os.MFD_CLOEXEC)
        os.ftruncate(fd, _SIZE_BYTES)
        os.pwrite(fd, _FIXED.pack(_MAGIC, os.urandom(16)), 0)
        return cls(fd)

    def grew(self, key: int, start: int, length: int) -> None:
        """The log of job `key` got `length` bytes at its cursor `start`."""
        at_ms = time.time_ns() // 1_000_000
        if key != self._key or start != self._end or not 0 <= at_ms - self._at_ms < _MERGE_MS:
            _SPAN.pack_into(self._map, self._offset(self._count), self.total, at_ms, start, key)
            self._count += 1
            _NUMBER.pack_into(self._map, _COUNT_AT, self._count)
            self._key, self._at_ms = key, at_ms
        self._end = start + length
        # Written last: a writer that is killed before leaves an empty span, and `covered` tells what it lacks.
        self.total += length
        _NUMBER.pack_into(self._map, _TOTAL_AT, self.total)

    @property
    def floor(self) -> int:
        """The oldest position whose span is kept."""
        oldest = max(0, self._count - SLOTS)
        return self._position(oldest) if self._count else 0

    @property
    def has_forgotten(self) -> bool:
        """Whether spans were lost to newer ones."""
        return self._count > SLOTS

    def covered(self) -> dict[int, int]:
        """For each job that has a span: the cursor up to which its log is told."""
        told: dict[int, int] = {}
        for span in self.spans(0):
            told[span.key] = max(told.get(span.key, 0), span.start + span.length)
        return told

    def spans(self, position: int) -> Iterator[Span]:
        """The spans from a position on, oldest first; the first one is cut to begin there."""
        for number in range(self._number_at(position), self._count):
            span = self._span(number)
            ahead = position - span.position
            if ahead <= 0:
                yield span
            elif ahead < span.length:
                yield Span(position, span.at_ms, span.start + ahead, span.key, span.length - ahead)

    def backwards(self) -> Iterator[Span]:
        """The spans, newest first."""
        for number in range(self._count - 1, max(0, self._count - SLOTS) - 1, -1):
            yield self._span(number)

    def since(self, at_ms: int) -> int:
        """The position behind the last span that began before an instant; clocks may have jumped in between."""
        for span in self.backwards():
            if span.at_ms < at_ms:
                return span.position + span.length
        return self.floor

    def _span(self, number: int) -> Span:
        position, at_ms, start, key = _SPAN.unpack_from(self._map, self._offset(number))
        end = self._position(number + 1) if number + 1 < self._count else self.total
        return Span(position, at_ms, start, key, end - position)

    def _number_at(self, position: int) -> int:
        """The number of the span a position lies in."""
        low, high = max(0, self._count - SLOTS), self._count
        while high - low > 1:
            middle = (low + high) // 2
            if self._position(middle) <= position:
                low = middle
            else:
                high = middle
        return low

    def _position(self, number: int) -> int:
        found: int = _NUMBER.unpack_from(self._map, self._offset(number))[0]
        return found

    @staticmethod
    def _offset(number: int) -> int:
        return _SPANS_AT + number % SLOTS * _SPAN.size
