"""The lines of one log that the dashboard keeps, and which of them are shown: by text, job and source."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from sbxtui.core.logs import LogLine
from sbxtui.core.text import harmless
from sbxtui.tui.widgets.transcript import Kind, Transcript

MAX_LINES = 100_000
MAX_CHARS = 24 * 1024 * 1024
_KINDS = {"err": Kind.ERR, "event": Kind.NOTE, "gap": Kind.FAILED}
_TAG_WIDTH = 8


@dataclass(slots=True)
class Look:
    """How lines are shown. `job` is a job's id or `guest`; `width` wraps at so many cells, 0 does not."""

    pattern: re.Pattern[str] | None = None
    job: str = ""
    has_times: bool = True
    width: int = 0

    def wants(self, line: LogLine) -> bool:
        """Whether a line is shown."""
        if self.job and (line.job != self.job if self.job != "guest" else line.is_output):
            return False
        return self.pattern is None or self.pattern.search(line.text) is not None

    def text(self, line: LogLine) -> str:
        """A line as it is shown, on one or more lines."""
        time = f"{line.at.astimezone():%H:%M:%S}  " if self.has_times else ""
        tag = (line.job if line.is_output else "guest") or line.source.value
        text = f"{time}{harmless(tag)[:_TAG_WIDTH]:<{_TAG_WIDTH}}  {harmless(line.text)}"
        if not self.width:
            return text
        return "\n".join(text[at : at + self.width] for at in range(0, max(1, len(text)), self.width))


class Logbook:
    """Keeps the last hundred thousand lines, and a transcript of those that are wanted."""

    def __init__(self) -> None:
        self._lines: deque[LogLine] = deque(maxlen=MAX_LINES)
        self.look = Look()
        self.transcript = _transcript()
        self.count = 0

    def add(self, lines: Iterable[LogLine]) -> None:
        """More lines."""
        for line in lines:
            self._lines.append(line)
            self.count += 1
            self._show(line)

    @property
    def dropped(self) -> int:
        """How many of the oldest are no longer kept."""
        return self.count - len(self._lines)

    def jobs(self) -> list[str]:
        """The jobs that said something, the last one first."""
        return list(dict.fromkeys(line.job for line in reversed(self._lines) if line.job and line.is_output))

    def wanted(self) -> list[str]:
        """All lines that are shown, in full."""
        return [self.look.text(line) for line in self._lines if self.look.wants(line)]

    def redraw(self) -> Transcript:
        """A new transcript, after the look was changed."""
        self.transcript = _transcript()
        for line in self._lines:
            self._show(line)
        return self.transcript

    def clear(self) -> Transcript:
        """Forget all lines that are kept."""
        self._lines.clear()
        self.count = 0
        return self.redraw()

    def _show(self, line: LogLine) -> None:
        if self.look.wants(line):
            kind = _KINDS.get(line.channel, Kind.OUT)
            self.transcript.add((kind, text) for text in self.look.text(line).split("\n"))


def _transcript() -> Transcript:
    return Transcript(max_lines=MAX_LINES, max_chars=MAX_CHARS)
