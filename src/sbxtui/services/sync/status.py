"""How a link is, as every face shows it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from sbxtui.core.text import counted
from sbxtui.services.sync.model import Path

_SHOWN = 50
_LAGS = 200


class LinkState(StrEnum):
    """What a link is doing."""

    CONNECTING = "connecting"
    SCANNING = "scanning"
    SEEDING = "seeding"
    WATCHING = "watching"
    PUSHING = "pushing"
    PULLING = "pulling"
    PAUSED = "paused"
    HALTED = "halted"
    OFFLINE = "offline"
    ENDED = "ended"


@dataclass(slots=True)
class Status:
    """Figures of one link, kept by the process that acts on it.

    Attributes:
        words: Why it is halted, offline or without hints.
        halts: The codes of the reasons it is halted for.
        seen: Entries of this machine that were found so far, while all of it is looked at.
        pending: Changes that are still to be carried over.
        pushed, pulled, sent_bytes: Changes made there and here since this process acts on it, and the content sent.
        scans, overflows: Looks at everything, and how often hints were lost so that one was due.
        decided: Conflicts that were decided as somebody had said beforehand.
        problems: Paths that are left alone, and the word for why; `failed` those of them that the sandbox refused.
        lags_s: From the first hint of a change to its being in the sandbox, the last of them.
    """

    state: LinkState = LinkState.CONNECTING
    words: str = ""
    halts: tuple[str, ...] = ()
    entries: int = 0
    seen: int = 0
    pending: int = 0
    sent_bytes: int = 0
    pushed: int = 0
    pulled: int = 0
    decided: int = 0
    scans: int = 0
    overflows: int = 0
    last_scan_at_s: float = 0.0
    trouble: str = ""
    conflicts: tuple[Path, ...] = ()
    guest_changes: int = 0
    problems: dict[Path, str] = field(default_factory=dict)
    failed: dict[Path, str] = field(default_factory=dict)
    lags_s: deque[float] = field(default_factory=lambda: deque(maxlen=_LAGS))

    def as_json(self) -> dict[str, object]:
        """As scripts see it, and as the link's row keeps it: lists are cut off at 50, counts are not."""
        return {
            "state": self.state.value,
            "reason": self.words,
            "halts": list(self.halts),
            "entries": self.entries,
            "seen": self.seen,
            "pending": self.pending,
            "pushed": self.pushed,
            "pulled": self.pulled,
            "decided": self.decided,
            "sent_bytes": self.sent_bytes,
            "scans": self.scans,
            "overflows": self.overflows,
            "last_scan_age_s": round(time.time() - self.last_scan_at_s, 1) if self.last_scan_at_s else None,
            "watch_trouble": self.trouble,
            "conflict_count": len(self.conflicts),
            "conflicts": [shown(path) for path in self.conflicts[:_SHOWN]],
            "guest_changes": self.guest_changes,
            "problem_count": len(self.problems),
            "problems": problems_json(self.problems),
            "lag_p50_s": self._lag(0.5),
            "lag_p95_s": self._lag(0.95),
        }

    def _lag(self, share: float) -> float | None:
        if not self.lags_s:
            return None
        ordered = sorted(self.lags_s)
        return round(ordered[min(len(ordered) - 1, int(len(ordered) * share))], 4)


def tells_more(said: Mapping[str, object], before: Mapping[str, object]) -> bool:
    """Whether figures tell more than that time went by: saying just that again and again would wake all who listen."""
    return {**said, "last_scan_age_s": None} != {**before, "last_scan_age_s": None}


def way_out(name: str, halts: Sequence[str]) -> str:
    """What a person does about a halt."""
    if "first_contact_deletes" in halts:
        return f"if they may go: `sbx sync resume {name} --accept-deletes`"
    if "large_seed" in halts:
        return f"leave it out with a `.sbxignore`, or, if all of it is meant: `sbx sync resume {name} --accept-large`"
    return f"look at both sides; then `sbx sync resume {name}` compares them anew and deletes nothing"


def entries_of(number: int) -> str:
    """So many files, folders and links, in words."""
    return counted(number, "entry", "entries")


def shown(path: Path) -> str:
    """A path as text; bytes that are no UTF-8 as lone surrogates, which JSON escapes."""
    return path.decode("utf-8", "surrogateescape")


def problems_json(problems: Mapping[Path, str]) -> list[dict[str, str]]:
    """The first problems, by path."""
    return [{"path": shown(path), "code": code} for path, code in sorted(problems.items())[:_SHOWN]]
