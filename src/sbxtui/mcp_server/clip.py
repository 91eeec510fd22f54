"""Output that may be of any length, of which a reply shows the beginning and the end."""

from __future__ import annotations

import base64
from dataclasses import dataclass

from sbxtui.core.text import counted

_HEAD_SHARE = 0.75


@dataclass(frozen=True, slots=True)
class Shown:
    """What a reply shows of some output: `text` has a line where bytes were left out."""

    text: str
    total_bytes: int
    returned_bytes: int

    @property
    def is_truncated(self) -> bool:
        """Whether bytes were left out."""
        return self.returned_bytes < self.total_bytes


class Clip:
    """Bytes as they come; of those beyond `keep_bytes` the head and the tail are kept, and all are counted.

    Args:
        keep_bytes: How many are kept.
        has_tail: Whether the end is kept too; else the beginning alone, as of something that is read on from there.
        is_base64: Show bytes as base64 instead of as text.
    """

    def __init__(self, keep_bytes: int, *, has_tail: bool = True, is_base64: bool = False) -> None:
        self.total_bytes = 0
        self._has_tail = has_tail
        self._is_base64 = is_base64
        self._head_limit = int(keep_bytes * _HEAD_SHARE) if has_tail else keep_bytes
        self._tail_limit = keep_bytes - self._head_limit
        self._head = bytearray()
        self._tail = bytearray()

    @classmethod
    def of(cls, data: bytes, keep_bytes: int, *, total_bytes: int | None = None, is_base64: bool = False) -> Clip:
        """The beginning of something that may be longer than what was read of it."""
        clip = cls(keep_bytes, has_tail=False, is_base64=is_base64)
        clip.add(data)
        clip.total_bytes = len(data) if total_bytes is None else total_bytes
        return clip

    def add(self, data: bytes) -> None:
        """Bytes that came."""
        self.total_bytes += len(data)
        room = self._head_limit - len(self._head)
        self._head += data[: max(0, room)]
        if rest := data[max(0, room) :]:
            self._tail += rest
            # Cut seldom: each cut moves all that is kept.
            if len(self._tail) > 2 * self._tail_limit:
                del self._tail[: len(self._tail) - self._tail_limit]

    def skip(self, size_bytes: int) -> None:
        """Bytes that came and are lost."""
        self.total_bytes += size_bytes
        self._head_limit = len(self._head)

    @property
    def is_whole(self) -> bool:
        """Whether every byte was kept."""
        return self.total_bytes == len(self._head) + len(self._tail)

    def shown(self, limit_bytes: int) -> Shown:
        """As a reply shows it, of at most `limit_bytes` of them."""
        if self.is_whole and self.total_bytes <= limit_bytes:
            return self._whole(bytes(self._head + self._tail))
        if self._is_base64 or not self._has_tail:
            return self._beginning(limit_bytes)
        head_bytes = int(limit_bytes * _HEAD_SHARE)
        head = _text_head(bytes(self._head + self._tail if self.is_whole else self._head), head_bytes)
        end = self._head + self._tail if self.is_whole else self._tail[-self._tail_limit :]
        tail = _text_tail(bytes(end), limit_bytes - head_bytes)
        returned = len(head.encode()) + len(tail.encode())
        left_out = counted(max(0, self.total_bytes - returned), "byte")
        return Shown(f"{head}\n[… {left_out} left out …]\n{tail}", self.total_bytes, returned)

    def _whole(self, data: bytes) -> Shown:
        text = base64.b64encode(data).decode() if self._is_base64 else data.decode("utf-8", "replace")
        return Shown(text, self.total_bytes, len(data))

    def _beginning(self, limit_bytes: int) -> Shown:
        data = bytes(self._head[:limit_bytes])
        if self._is_base64:
            return Shown(base64.b64encode(data).decode(), self.total_bytes, len(data))
        whole = data[: _character_end(data)] if len(data) < self.total_bytes else data
        return Shown(whole.decode("utf-8", "replace"), self.total_bytes, len(whole))


def _text_head(data: bytes, limit_bytes: int) -> str:
    data = data[:limit_bytes]
    return data[: _character_end(data)].decode("utf-8", "replace")


def _text_tail(data: bytes, limit_bytes: int) -> str:
    data = data[max(0, len(data) - max(0, limit_bytes)) :]
    start = 0
    # A character's later bytes, whose first one was left out.
    while start < min(3, len(data)) and data[start] & 0xC0 == 0x80:
        start += 1
    return data[start:].decode("utf-8", "replace")


def _character_end(data: bytes) -> int:
    """Where the last whole character ends."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue
        needed = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
        return len(data) - back if needed > back else len(data)
    return len(data)
