"""Lines of logs, wherever they come from: values, putting lines together, choosing among them. No I/O."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from sbxtui.core.errors import UsageError
from sbxtui.core.linesearch import is_found
from sbxtui.core.text import harmless_line, parse_duration_s
from sbxtui.core.values import dataclass

# Of one line that has no end, so much is one.
MAX_LINE_BYTES = 64 * 1024
_OPEN_LINES_MAX = 512
GUEST = "guest"


class LogSource(StrEnum):
    """Where lines come from: the guest's own log, what the platform kept of it, or the build of an image."""

    GUEST = "guest"
    CLOUDWATCH = "cloudwatch"
    BUILD = "build"


@dataclass(frozen=True, slots=True)
class LogChunk:
    """Bytes of a sandbox's log that came in at `at`; `cursor` is the position behind them.

    `channel` is out, err, pty, or `event` for what the guest itself tells, as lines of JSON. `lost_bytes` were no
    longer kept.
    """

    cursor: int
    at: datetime
    job: str = ""
    channel: str = ""
    data: bytes = b""
    lost_bytes: int = 0


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line. `text` is as it came, escapes too, without its end; make it harmless before it is shown.

    `cursor` is the position behind it, where another look may begin; 0 where the source knows none. `channel` is out,
    err, pty, `event` for what a guest tells of itself, `gap` for a line about what is missing.
    """

    at: datetime
    source: LogSource
    channel: str
    text: str
    job: str = ""
    cursor: int = 0

    @property
    def is_output(self) -> bool:
        """Whether a program wrote it."""
        return self.channel not in ("event", "gap")


class LineMaker:
    """Makes lines of chunks: each job's channels apart, however their bytes come mixed."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], tuple[datetime, bytearray]] = {}

    def lines(self, chunk: LogChunk) -> Iterator[LogLine]:
        """The lines that a chunk completes."""
        if chunk.lost_bytes:
            job = f" of job {chunk.job[:8]}" if chunk.job else ""
            words = f"{chunk.lost_bytes} bytes{job} are no longer kept"
            yield LogLine(chunk.at, LogSource.GUEST, "gap", words, chunk.job, chunk.cursor)
            return
        for line in self._cut(chunk):
            if line.channel == "event":
                yield from self._told(line)
            else:
                yield line

    def _told(self, line: LogLine) -> Iterator[LogLine]:
        event = _event_of(line.text)
        job = str(event.get("job") or "")
        if event.get("event") == "job.ended":
            # What it said last had no end.
            yield from self._rest_of(job, line.cursor)
        yield replace(line, text=event_words(event), job=harmless_line(job, limit=200))

    def rest(self) -> Iterator[LogLine]:
        """Lines whose end has not come."""
        for job in {key[0] for key in self._open}:
            yield from self._rest_of(job, 0)

    def _cut(self, chunk: LogChunk) -> Iterator[LogLine]:
        key = (chunk.job, chunk.channel)
        begun_at, pending = self._open.pop(key, (chunk.at, bytearray()))
        at = chunk.cursor - len(chunk.data)
        *whole, rest = chunk.data.split(b"\n")
        for piece in whole:
            at += len(piece) + 1
            yield _line(begun_at, *key, bytes(pending + piece), at)
            begun_at, pending = chunk.at, bytearray()
        pending += rest
        while len(pending) > MAX_LINE_BYTES:
            yield _line(begun_at, *key, bytes(pending[:MAX_LINE_BYTES]), chunk.cursor)
            del pending[:MAX_LINE_BYTES]
        if pending:
            self._open[key] = (begun_at, pending)
        if len(self._open) > _OPEN_LINES_MAX:
            yield from self._rest_of(next(iter(self._open))[0], chunk.cursor)

    def _rest_of(self, job: str, cursor: int) -> Iterator[LogLine]:
        for key in [key for key in self._open if key[0] == job]:
            at, pending = self._open.pop(key)
            yield _line(at, *key, bytes(pending), cursor)


def _line(at: datetime, job: str, channel: str, data: bytes, cursor: int) -> LogLine:
    text = data.removesuffix(b"\r").decode("utf-8", "replace")
    return LogLine(at, LogSource.GUEST, channel, text, job, cursor)


def _event_of(text: str) -> dict[str, Any]:
    try:
        event = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return event if isinstance(event, dict) else {}


def event_words(event: dict[str, Any]) -> str:
    """What a guest tells of itself, in words; any guest may tell anything."""
    match event.get("event"):
        case "job.started":
            actor = f" by {event.get('actor')}" if event.get("actor") else ""
            words = f"job {str(event.get('job'))[:8]} began{actor}: {event.get('command')}"
        case "job.ended":
            words = f"job {str(event.get('job'))[:8]} {_how(event)}"
        case "guest.restarted":
            words = "the guest's server was started again; jobs went on"
        case "guest.resumed":
            words = f"resumed; the clock moved by {event.get('clock_jump_s', 0)} s"
        case _:
            words = json.dumps(event)
    return harmless_line(words, limit=300)


def _how(event: dict[str, Any]) -> str:
    if event.get("oom"):
        return "was killed for want of memory"
    if event.get("timed_out"):
        return "ran out of its time"
    if event.get("code") is None:
        return f"was ended by signal {event.get('signal')}"
    return f"ended with {event.get('code')}"


@dataclass(frozen=True, slots=True)
class LogQuery:
    """Which lines are wanted. `grep` is searched for in each line's text; `tail` counts from the end of what is there.

    `job` is an id or the beginning of one; `guest` means what the guest tells of itself.
    """

    source: LogSource = LogSource.GUEST
    since: datetime | None = None
    until: datetime | None = None
    tail: int | None = None
    grep: re.Pattern[str] | None = None
    job: str = ""
    log_group: str = ""
    is_following: bool = False

    @property
    def wants_all(self) -> bool:
        """Whether no line is left out for what it is."""
        return self.grep is None and not self.job and self.until is None

    def wants(self, line: LogLine) -> bool:
        """Whether a line is one of them, whatever `tail` says.

        Raises:
            UsageError: `grep` comes to no end on it.
        """
        if self.since is not None and line.at < self.since:
            return False
        if self.until is not None and line.at > self.until:
            return False
        if self.job and not (line.job.startswith(self.job) or (self.job == GUEST and not line.is_output)):
            return False
        return self.grep is None or is_found(self.grep, line.text)


@dataclass(slots=True)
class Tail:
    """Keeps the last `count` of the lines it is given; None keeps all."""

    count: int | None
    lines: list[LogLine] = field(default_factory=list)

    def add(self, line: LogLine) -> None:
        """One more."""
        self.lines.append(line)
        if self.count is not None and len(self.lines) > 2 * self.count + 64:
            del self.lines[: len(self.lines) - self.count]

    def kept(self) -> list[LogLine]:
        """The last ones, oldest first."""
        return self.lines if self.count is None else self.lines[len(self.lines) - min(self.count, len(self.lines)) :]


def parse_instant(text: str, now: datetime) -> datetime:
    """An instant: `10m` or `2h30m` ago, or ISO-8601, which is local time unless it says otherwise.

    Raises:
        UsageError: It is neither.
    """
    try:
        return now - timedelta(seconds=parse_duration_s(text))
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError) as exc:
        # The first and last day of the calendar are beyond it in another time zone.
        raise UsageError(
            f"`{harmless_line(text, limit=60)}` is no point in time", hint="10m, 2h30m, or 2026-01-31T12:00"
        ) from exc


def parse_grep(text: str) -> re.Pattern[str] | None:
    """A pattern; None for an empty one.

    Raises:
        UsageError: It is no regular expression.
    """
    try:
        return re.compile(text) if text else None
    except re.error as exc:
        raise UsageError(f"--grep `{harmless_line(text, limit=60)}` is no regular expression: {exc}") from exc
