"""What somebody should hear of before it is too late, and in which words. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sbxtui.core.jobs import Job
from sbxtui.core.model import Event
from sbxtui.core.text import counted, harmless_line
from sbxtui.core.usage import Usage

# The fact of a row that says what was told already.
TOLD = "troubles_told"
DISK_FULL_SHARE = 0.9
# Room made that is gone again in a moment is no end of it.
DISK_EASED_SHARE = 0.85
SILENT_AFTER = timedelta(minutes=10)
_JOBS_TOLD_MAX = 16

_WORDS = {
    "trouble.disk": "its disk is {percent} % full",
    "trouble.oom": "{kills} for want of memory",
    "trouble.clock": "its clock jumped; what looks at the time may be confused",
    "trouble.silent": "job {job} has said nothing for {minutes} minutes: {command}",
    "trouble.link": "its sync halted: {reason}",
    "sandbox.cap": "it ends in less than {minutes} minutes; {hint}",
    "sandbox.killed": "something in it was killed for a limit",
    "budget.warning": "80 % of its budget of ${budget_usd} are spent",
    "budget.spent": "its budget of ${budget_usd} is spent",
    "keep-awake.end": "it is not kept awake any more: {reason}",
}


@dataclass(frozen=True, slots=True)
class News:
    """What is new: events to write, by kind, and what the row is to remember of it."""

    told: Mapping[str, object]
    events: Sequence[tuple[str, Mapping[str, object]]] = field(default_factory=list)


def trouble_words(event: Event) -> str:
    """What an event that is trouble means, in harmless words; empty for any other event."""
    words = _WORDS.get(event.kind, "")
    if not words:
        return ""
    data = {key: harmless_line(str(value), limit=120) for key, value in event.data.items()}
    try:
        return f"{harmless_line(event.subject)}: {words.format_map(data)}"
    except KeyError:
        return f"{harmless_line(event.subject)}: {event.kind}"


def usage_news(told: Mapping[str, object], usage: Usage) -> News:
    """What a sample says that was not told yet; what is over may be told again."""
    now = dict(told)
    events: list[tuple[str, Mapping[str, object]]] = []
    share = _disk_share(usage)
    if share is not None and share >= DISK_FULL_SHARE and not told.get("disk"):
        now["disk"] = True
        events.append(("trouble.disk", {"percent": round(100 * share)}))
    elif share is not None and share < DISK_EASED_SHARE:
        now.pop("disk", None)
    for key, kind, count in (("oom", "trouble.oom", usage.oom_kills), ("clock", "trouble.clock", usage.clock_jumps)):
        before = told.get(key)
        if count is None:
            continue
        now[key] = count
        if isinstance(before, int) and count > before:
            new = counted(count - before, "process was killed", "processes were killed")
            events.append((kind, {"kills": new} if key == "oom" else {"jumps": count - before}))
    return News(now, events)


def silence_news(told: Mapping[str, object], silent: Iterable[tuple[Job, timedelta]]) -> News:
    """The same of jobs that run and say nothing, with for how long."""
    listed = told.get("silent")
    known = [str(one) for one in listed] if isinstance(listed, list) else []
    events: list[tuple[str, Mapping[str, object]]] = []
    for job, span in silent:
        if span >= SILENT_AFTER and job.id not in known:
            known.append(job.id)
            data = {"job": job.id[:8], "minutes": int(span.total_seconds() // 60), "command": job.command[:80]}
            events.append(("trouble.silent", data))
    return News({**told, "silent": known[-_JOBS_TOLD_MAX:]} if events else told, events)


def link_news(told: Mapping[str, object], status: Mapping[str, object]) -> News:
    """The same of a sync, by what its owner said last."""
    reason = harmless_line(str(status.get("reason") or "halted"), limit=200)
    is_halted = status.get("state") == "halted"
    if is_halted and told.get("link") != reason:
        return News({**told, "link": reason}, [("trouble.link", {"reason": reason})])
    if not is_halted and "link" in told:
        return News({key: value for key, value in told.items() if key != "link"})
    return News(told)


class Silence:
    """For how long jobs have said nothing, as far as one looker saw."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, datetime]] = {}

    def of(self, jobs: Iterable[Job], now: datetime) -> list[tuple[Job, timedelta]]:
        """Each job that runs, with how long its log has not grown."""
        found = []
        seen: dict[str, tuple[int, datetime]] = {}
        for job in jobs:
            if job.is_over:
                continue
            cursor, since = self._seen.get(job.id, (-1, now))
            seen[job.id] = (cursor, since) if cursor == job.cursor else (job.cursor, now)
            found.append((job, now - seen[job.id][1]))
        self._seen = seen
        return found


def _disk_share(usage: Usage) -> float | None:
    if not usage.disk_limit_bytes or usage.disk_free_bytes is None:
        return None
    return 1.0 - usage.disk_free_bytes / usage.disk_limit_bytes
