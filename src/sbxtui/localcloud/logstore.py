"""Log groups and streams that clients made themselves, and the events they put there: a small file for each."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sbxtui.localcloud.recordjson import record_json
from sbxtui.localcloud.spec import write_private

MAX_STREAM_BYTES = 64 << 20


class LogFull(Exception):
    """A stream takes no more."""


@dataclass(frozen=True, slots=True)
class Line:
    """One event: when, in milliseconds since the epoch, and what."""

    at_ms: int
    text: str


@dataclass(frozen=True, slots=True)
class Made:
    """A group, or with a `stream` one of its streams."""

    group: str
    stream: str
    made_at: datetime


@dataclass(frozen=True, slots=True)
class Stream:
    """One stream: log files, those of several sandboxes where they were told to share it, and what clients put."""

    group: str
    name: str
    began_at: datetime
    files: tuple[Path, ...] = ()

    @property
    def began_ms(self) -> int:
        """As the service tells instants."""
        return int(self.began_at.timestamp() * 1000)


@dataclass(frozen=True, slots=True)
class LogStore:
    """The folder of them. Blocking."""

    directory: Path

    def all(self) -> Iterator[Made]:
        """All groups and streams."""
        for path in self.directory.glob("*.json"):
            try:
                raw = json.loads(path.read_text())
                yield Made(raw["group"], raw["stream"], datetime.fromisoformat(raw["made_at"]))
            except (OSError, ValueError, TypeError, KeyError):
                continue

    def make(self, group: str, stream: str = "") -> None:
        """Make a group, or a stream in it.

        Raises:
            FileExistsError: It is there.
            OSError: The disk is full.
        """
        path = self._path(group, stream, "json")
        if path.exists():
            raise FileExistsError(path)
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(path, record_json(Made(group, stream, datetime.now(UTC))), is_durable=True)

    def has_stream(self, group: str, stream: str) -> bool:
        """Whether somebody made it."""
        return self._path(group, stream, "json").exists()

    def put(self, group: str, stream: str, events: Sequence[Mapping[str, Any]]) -> None:
        """Add events.

        Raises:
            LogFull: There would be too many.
            OSError: The disk is full.
        """
        path = self.events_file(group, stream)
        rows = "".join(json.dumps([event["timestamp"], event["message"]]) + "\n" for event in events)
        if path.exists() and path.stat().st_size + len(rows) > MAX_STREAM_BYTES:
            raise LogFull
        with path.open("a") as file:
            file.write(rows)

    def lines(self, group: str, stream: str) -> list[Line]:
        """What was put there."""
        try:
            text = self.events_file(group, stream).read_text()
        except FileNotFoundError:
            return []
        # The last row may have been cut by a crash.
        return [Line(int(at_ms), str(message)) for at_ms, message in map(json.loads, text.split("\n")[:-1])]

    def events_file(self, group: str, stream: str) -> Path:
        """Where its events are, if there are any."""
        return self._path(group, stream, "events")

    def _path(self, group: str, stream: str, suffix: str) -> Path:
        name = hashlib.sha256(f"{group}\0{stream}".encode()).hexdigest()[:40]
        return self.directory / f"{name}.{suffix}"
