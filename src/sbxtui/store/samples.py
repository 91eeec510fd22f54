"""Samples of the last hour, one small file a sandbox: a ring of slots, each for five seconds.

Any face that looks writes what it saw into the slot of that moment, so that faces need not know of each other. A file
may be lost or damaged at any time: it is only what charts are drawn of.
"""

from __future__ import annotations

import contextlib
import math
import os
import struct
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sbxtui.core.usage import Usage

EVERY_S = 5
SLOTS = 720
_MAGIC = b"sbxring1"
_UNKNOWN = math.nan
# When, then what; NaN is unknown. Whole numbers up to 2^53 are exact.
_FIELDS = (
    *("cpu_percent", "cores", "memory_bytes", "memory_limit_bytes", "disk_bytes", "disk_free_bytes"),
    *("received_bytes", "sent_bytes", "processes", "oom_kills", "throttled_s"),
)
_WHOLE = frozenset(_FIELDS) - {"cpu_percent", "cores", "throttled_s"}
_SLOT = struct.Struct(f"<d{len(_FIELDS)}d")
# The same slot, of which only the first two are read.
_CPU = struct.Struct(f"<2d{8 * (len(_FIELDS) - 1)}x")


class Samples:
    """The files of a home; blocking calls."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(self, context: str, sandbox_id: str, usage: Usage) -> None:
        """Keep a sample; one that cannot be kept is none."""
        numbers = [getattr(usage, name) for name in _FIELDS]
        slot = _SLOT.pack(usage.at.timestamp(), *(_UNKNOWN if one is None else float(one) for one in numbers))
        at = len(_MAGIC) + int(usage.at.timestamp() / EVERY_S) % SLOTS * _SLOT.size
        with contextlib.suppress(OSError):
            file = self._file(context, sandbox_id)
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                if os.pread(handle, len(_MAGIC), 0) != _MAGIC:
                    os.ftruncate(handle, 0)
                    os.pwrite(handle, _MAGIC, 0)
                os.pwrite(handle, slot, at)
            finally:
                os.close(handle)

    def last_hour(self, context: str, sandbox_id: str, now: datetime) -> list[Usage]:
        """What is kept of a sandbox, oldest first."""
        try:
            data = self._file(context, sandbox_id).read_bytes()
        except OSError:
            return []
        if not data.startswith(_MAGIC):
            return []
        body = data[len(_MAGIC) :]
        slots = _SLOT.iter_unpack(body[: len(body) - len(body) % _SLOT.size])
        since = now.timestamp() - EVERY_S * SLOTS
        return sorted(
            (_usage(at, numbers) for at, *numbers in slots if since < at <= now.timestamp() + EVERY_S),
            key=lambda usage: usage.at,
        )

    def cpu_of_late(
        self, context: str, sandbox_id: str, now: datetime, span_s: float
    ) -> list[tuple[float, float | None]]:
        """Instants and percents of its processors over the last so many seconds; reads no more than that."""
        first = int((now.timestamp() - span_s) / EVERY_S)
        wanted = [number % SLOTS for number in range(first, first + int(span_s / EVERY_S) + 2)]
        # The ring may turn over within the span.
        turn = next((at for at, slot in enumerate(wanted) if slot == 0), 0)
        found: list[tuple[float, float]] = []
        with contextlib.suppress(OSError), self._file(context, sandbox_id).open("rb", buffering=0) as file:
            for run in (wanted[:turn], wanted[turn:]):
                if run:
                    data = os.pread(file.fileno(), len(run) * _SLOT.size, len(_MAGIC) + run[0] * _SLOT.size)
                    found += _CPU.iter_unpack(data[: len(data) - len(data) % _SLOT.size])
        since, until = now.timestamp() - span_s, now.timestamp() + EVERY_S
        return sorted((at, None if math.isnan(cpu) else cpu) for at, cpu in found if since < at <= until)

    def forget(self, context: str, sandbox_id: str) -> None:
        """Remove a sandbox's file."""
        with contextlib.suppress(OSError):
            self._file(context, sandbox_id).unlink()

    def _file(self, context: str, sandbox_id: str) -> Path:
        return self._folder / context / f"{sandbox_id}.ring"


def _usage(at: float, numbers: list[float]) -> Usage:
    known: dict[str, Any] = {
        name: int(one) if name in _WHOLE else one
        for name, one in zip(_FIELDS, numbers, strict=True)
        if math.isfinite(one)
    }
    return Usage(datetime.fromtimestamp(at, UTC), **known)
