"""What one sandbox asked the network for, and what became of it: the newest in memory, two bounded files on disk."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sbxtui.core.text import iso

_KEPT = 1_000
_FILE_BYTES = 1 << 20
_TAIL_BYTES = 1 << 18
# A sandbox that asks more often than this fills nobody's disk: the rest is counted.
_PER_SECOND = 50

Entry = dict[str, Any]


class NetworkLog:
    """Entries numbered from 1, over restarts too; `file` and one older file beside it hold the last megabytes."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._entries: deque[Entry] = deque(_load(file), maxlen=_KEPT)
        self._seq: int = self._entries[-1]["seq"] if self._entries else 0
        self._changed = asyncio.Event()
        self._second = 0
        self._in_second = 0
        self._left_out = 0

    def add(self, action: str, **facts: object) -> None:
        """Note something; facts that are empty are left out. A full disk loses the file's line and nothing else."""
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._in_second = second, 0
        self._in_second += 1
        if self._in_second > _PER_SECOND:
            self._left_out += 1
            return
        self._seq += 1
        known = {key: value for key, value in facts.items() if value not in ("", None)}
        entry: Entry = {"seq": self._seq, "at": iso(datetime.now(UTC)), "action": action, **known}
        if self._left_out:
            entry["left_out"], self._left_out = self._left_out, 0
        self._entries.append(entry)
        self._write(entry)
        self._changed.set()
        self._changed = asyncio.Event()

    @property
    def last_seq(self) -> int:
        """The number of the newest entry, 0 before the first."""
        return self._seq

    def after(self, seq: int) -> Sequence[Entry]:
        """The entries in memory behind a number."""
        return [entry for entry in self._entries if entry["seq"] > seq]

    async def wait(self, seq: int, *, timeout_s: float) -> Sequence[Entry]:
        """The same, waiting for one to come; none when that takes too long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._seq <= seq:
                    await self._changed.wait()
        return self.after(seq)

    def _write(self, entry: Entry) -> None:
        line = json.dumps(entry, ensure_ascii=True).encode() + b"\n"
        with contextlib.suppress(OSError):
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(self._file, flags, 0o600)
            try:
                os.write(descriptor, line)
                is_full = os.fstat(descriptor).st_size > _FILE_BYTES
            finally:
                os.close(descriptor)
            if is_full:
                self._file.replace(_older(self._file))


def _older(file: Path) -> Path:
    return file.with_name(f"{file.name}.1")


def _tail(file: Path) -> bytes:
    with file.open("rb") as stream:
        stream.seek(max(0, stream.seek(0, os.SEEK_END) - _TAIL_BYTES))
        return stream.read()


def _load(file: Path) -> list[Entry]:
    entries: list[Entry] = []
    for path in (_older(file), file):
        with contextlib.suppress(OSError):
            for line in _tail(path).splitlines():
                # A crash may have cut the last line, and we the first.
                with contextlib.suppress(ValueError, TypeError):
                    entry = json.loads(line)
                    entries.append({**entry, "seq": int(entry["seq"])})
    return entries[-_KEPT:]
