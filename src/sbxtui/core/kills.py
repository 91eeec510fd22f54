"""What a local sandbox's watchdog killed for going over a limit, as `kills.json` beside the sandbox's files tells it.

The keeper writes the file, the local cloud answers from it as `stateReason`, and faces on the same machine read it.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from sbxtui.core.text import harmless_line, short_size
from sbxtui.core.values import dataclass

FILE_NAME = "kills.json"
# A file of these is read at each look.
KEPT = 16


@dataclass(frozen=True, slots=True)
class Kill:
    """A process or job that went over a limit (`memory`, `pids`, `disk`) and was killed.

    `at` is ISO-8601 UTC. `pid` is 0 and `command` empty where the kernel killed what nobody had seen before. `used` and
    `allowed` are bytes, for `pids` tasks."""

    at: str
    limit: str
    pid: int
    command: str
    used: int
    allowed: int


@dataclass(frozen=True, slots=True)
class Kills:
    """The last kills, oldest first, and how many there were in all."""

    last: tuple[Kill, ...] = ()
    count: int = 0

    @property
    def words(self) -> str:
        """The last kill in words for people; empty when there was none."""
        if not self.last:
            return ""
        return kill_words(self.last[-1]) + (f" ({self.count} kills in all)" if self.count > 1 else "")

    def after(self, count: int) -> tuple[Kill, ...]:
        """Those after the first `count` ever, as far as they were kept."""
        return self.last[-(self.count - count) :] if self.count > count else ()

    def to_json(self) -> str:
        """One JSON document."""
        return json.dumps({"count": self.count, "last": [dataclasses.asdict(kill) for kill in self.last]})

    @classmethod
    def from_json(cls, text: str | bytes) -> Kills:
        """Undo `to_json`; unknown keys of a newer version are ignored.

        Raises:
            ValueError: It is no such document.
        """
        names = {field.name for field in dataclasses.fields(Kill)}
        try:
            raw: dict[str, Any] = json.loads(text)
            kills = tuple(Kill(**{key: one[key] for key in one if key in names}) for one in raw["last"])
            return cls(kills, int(raw["count"]))
        except (AttributeError, KeyError, TypeError) as exc:
            raise ValueError(f"no list of kills: {exc}") from exc


def kill_words(kill: Kill) -> str:
    """What was killed, why and when, in one line for people; the limit comes first, so that it survives a cut."""
    who = f"{harmless_line(kill.command, limit=32)} (pid {kill.pid})" if kill.command else "a process"
    return f"killed for {kill.limit}: {who}, {usage_words(kill)}, at {kill.at}"


def usage_words(kill: Kill) -> str:
    """What was used of the limit."""
    if kill.limit == "pids":
        return f"{kill.used} of {kill.allowed} processes and threads"
    if kill.used == kill.allowed:
        return f"all {short_size(kill.allowed)} used"
    return f"{short_size(kill.used)} of {short_size(kill.allowed)} used"
