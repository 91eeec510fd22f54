"""The lines of one log that the dashboard keeps, and which of them are shown: by text, job and source."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache

from sbxtui.core.errors import UsageError
from sbxtui.core.linesearch import is_found
from sbxtui.core.logs import LogLine, LogSource
from sbxtui.core.text import harmless
from sbxtui.tui.widgets.transcript import Kind, Transcript

MAX_LINES = 100_000
MAX_CHARS = 24 * 1024 * 1024
_KINDS = {"err": Kind.ERR, "event": Kind.NOTE, "gap": Kind.FAILED}
_TAG_WIDTH = 8
_Kept = tuple[datetime, str, str, str, str, int]


@dataclass(slots=True)
class Look:
    """How lines are shown. `job` is a job's id or `guest`; `width` wraps at so many cells, 0 does not. `gave_up` says
    why the pattern was taken back, if it was.
    """

    pattern: re.Pattern[str] | None = None
    job: str = ""
    has_times: bool = True
    width: int = 0
    gave_up: str = ""

    def wants(self, line: LogLine) -> bool:
        """Whether a line is shown."""
        if self.job and (line.job != self.job if self.job != "guest" else line.is_output):
            return False
        if self.pattern is None:
            return True
        try:
            return is_found(self.pattern, line.text)
        except UsageError as exc:
            # One such line is enough: the next would hold up the screen as long again.
            self.pattern, self.gave_up = None, exc.message
            return True

    def text(self, line: LogLine) -> str:
        """A line as it is shown, on one or more lines."""
        clock = _clock(int(line.at.timestamp()), time.tzname) if self.has_times else ""
        tag = (line.job if line.is_output else "guest") or line.source.value
        text = f"{clock}{harmless(tag)[:_TAG_WIDTH]:<{_TAG_WIDTH}}  {harmless(line.text)}"
        if not self.width:
            return text
        return "\n".join(text[at : at + self.width] for at in range(0, max(1, len(text)), self.width))


class Logbook:
    """Keeps the last hundred thousand lines, and a transcript of those that are wanted."""

    def __init__(self) -> None:
        # Plain values, for the same reason as a transcript's.
        self._lines: deque[_Kept] = deque(maxlen=MAX_LINES)
        self.look = Look()
        self.transcript = _transcript()
        self.count = 0

    def add(self, lines: Iterable[LogLine]) -> None:
        """More lines."""
        came = list(lines)
        self._lines.extend(map(_kept, came))
        self.count += len(came)
        self._show(came)

    @property
    def dropped(self) -> int:
        """How many of the oldest are no longer kept."""
        return self.count - len(self._lines)

    def jobs(self) -> list[str]:
        """The jobs that said something, the last one first."""
        lines = map(_line, reversed(self._lines))
        return list(dict.fromkeys(line.job for line in lines if line.job and line.is_output))

    def wanted(self) -> list[str]:
        """All lines that are shown, in full."""
        return [self.look.text(line) for line in map(_line, self._lines) if self.look.wants(line)]

    def redraw(self) -> Transcript:
        """A new transcript, after the look was changed."""
        self.transcript = _transcript()
        self._show(map(_line, self._lines))
        return self.transcript

    def clear(self) -> Transcript:
        """Forget all lines that are kept."""
        self._lines.clear()
        self.count = 0
        return self.redraw()

    def _show(self, lines: Iterable[LogLine]) -> None:
        self.transcript.add(
            (_KINDS.get(line.channel, Kind.OUT), text)
            for line in lines
            if self.look.wants(line)
            for text in self.look.text(line).split("\n")
        )


def _kept(line: LogLine) -> _Kept:
    return line.at, line.source.value, line.channel, line.text, line.job, line.cursor


def _line(kept: _Kept) -> LogLine:
    at, source, channel, text, job, cursor = kept
    return LogLine(at, LogSource(source), channel, text, job, cursor)


@lru_cache(maxsize=64)
def _clock(second: int, zone: tuple[str, str]) -> str:
    """The time of day of a second, which many lines share; `zone` is the one that counts."""
    return f"{datetime.fromtimestamp(second, UTC).astimezone():%H:%M:%S}  "


def _transcript() -> Transcript:
    return Transcript(max_lines=MAX_LINES, max_chars=MAX_CHARS)
