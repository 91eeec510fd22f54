"""Lines of log files, and places in them that hold though old files go: an instant, and how many lines of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path

from sbxtui.localcloud.logstore import Line

# An instant in milliseconds since the epoch, and how many of its lines come before.
Place = tuple[int, int]
START: Place = (0, 0)
_STAMP = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z) ")


def read_lines(files: Iterable[Path], began_at: datetime) -> list[Line]:
    """What was printed to files, oldest first; a line without a time has that of the one before. Blocking."""
    at_ms = int(began_at.timestamp() * 1000)
    found: list[Line] = []
    for file in files:
        try:
            text = file.read_bytes().decode("utf-8", "replace")
        except OSError:
            continue
        for line in text.splitlines():
            if stamp := _STAMP.match(line):
                at_ms = max(at_ms, int(datetime.fromisoformat(stamp[1]).timestamp() * 1000))
            if line:
                found.append(Line(at_ms, line))
    return found


def place_of(lines: Sequence[Line], position: int) -> Place:
    """Behind so many lines, which are in the order of their instants."""
    if not position:
        return START
    at_ms = lines[position - 1].at_ms
    return at_ms, sum(line.at_ms == at_ms for line in lines[:position])


def position_of(place: Place, lines: Sequence[Line]) -> int:
    """How many lines come before a place."""
    at_ms, count = place
    earlier = sum(line.at_ms < at_ms for line in lines)
    return min(len(lines), earlier + min(count, sum(line.at_ms == at_ms for line in lines)))
