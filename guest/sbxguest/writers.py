"""How far each of those who type at one terminal has come, written through to the job's log file."""

from __future__ import annotations

import hashlib
import os
import struct

_AT = 1024
_ENTRY = struct.Struct("<QQQ")
WRITERS_MAX = 120


class WriterTable:
    """By writer: bytes accepted, and the offset an end was typed at last (plus one; 0 is none).

    Of more than `WRITERS_MAX` the one that has been silent longest is forgotten.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        # Key to slot; the one that wrote last comes last.
        self._slots: dict[int, int] = {}
        self._entries: dict[int, tuple[int, int]] = {}
        data = os.pread(fd, _ENTRY.size * WRITERS_MAX, _AT)
        for slot in range(len(data) // _ENTRY.size):
            key, accepted, ended = _ENTRY.unpack_from(data, slot * _ENTRY.size)
            if key:
                self._slots[key] = slot
                self._entries[key] = (accepted, ended)

    def accepted(self, writer: str) -> int:
        """How many bytes of this writer were taken."""
        return self._entries.get(_key(writer), (0, 0))[0]

    def has_ended_at(self, writer: str, offset: int) -> bool:
        """Whether this writer's last end was typed at that offset."""
        return self._entries.get(_key(writer), (0, 0))[1] == offset + 1

    def add(self, writer: str, count: int) -> None:
        """That many more bytes were taken."""
        accepted, ended = self._entries.get(_key(writer), (0, 0))
        self._save(_key(writer), accepted + count, ended)

    def end_at(self, writer: str, offset: int) -> None:
        """An end was typed."""
        self._save(_key(writer), self.accepted(writer), offset + 1)

    def close(self) -> None:
        """The log file is being closed: write nothing any more."""
        self._fd = -1

    def _save(self, key: int, accepted: int, ended: int) -> None:
        slot = self._slots.pop(key, None)
        if slot is None:
            slot = len(self._slots)
            if slot >= WRITERS_MAX:
                oldest = next(iter(self._slots))
                slot = self._slots.pop(oldest)
                del self._entries[oldest]
        self._slots[key] = slot
        self._entries[key] = (accepted, ended)
        if self._fd >= 0:
            os.pwrite(self._fd, _ENTRY.pack(key, accepted, ended), _AT + slot * _ENTRY.size)


def _key(writer: str) -> int:
    return int.from_bytes(hashlib.blake2b(writer.encode("utf-8", "replace"), digest_size=8).digest(), "little") or 1
