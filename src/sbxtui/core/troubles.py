"""What somebody should hear of before it is too late, and in which words. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from sbxtui.core.jobs import LONG_S, Job, program_of
from sbxtui.core.model import Event
from sbxtui.core.text import counted, harmless_line, short_age
from sbxtui.core.values import dataclass

if TYPE_CHECKING:
    from sbxtui.core.usage import Usage

# The fact of a row that says what was told already.
TOLD = "troubles_told"
JOB_EXIT = "job.exit"
DISK_FULL_SHARE = 0.9
# Room made that is gone again in a moment is no end of it.
DISK_EASED_SHARE = 0.85
SILENT_AFTER = timedelta(minutes=10)
WAITS_AFTER = timedelta(seconds=30)
_JOBS_TOLD_MAX = 16
# A shell that nobody gave anything to do is at its prompt for good.
_AT_REST = re.compile(r"\S*\b(ba|da|a|k|z|fi)?sh( -[il]+)*")

# An agent's call waits for a person.
ASKS = "client.asks"
_WORDS = {
    "trouble.disk": "its disk is {percent} % full",
    "trouble.oom": "{kills} for want of memory",
    "trouble.clock": "its clock jumped; what looks at the time may be confused",
    "trouble.clock-off": "its clock is {seconds} s {way} this machine's; certificates and tokens may be refused",
    "trouble.clock-set": "its clock was {seconds} s {way} this machine's, and was set",
    "trouble.server": "its guest's server was started again; its jobs went on",
    "trouble.boot": "it was started anew: the jobs of before are gone",
    "trouble.waiting": "job {job} waits for input: {program}",
    "trouble.silent": "job {job} has said nothing for {minutes} minutes: {program}",
    "trouble.link": "its sync halted: {reason}",
    "sandbox.cap": "it ends in less than {minutes} minutes; {hint}",
    "sandbox.killed": "something in it was killed for a limit",
    "budget.warning": "80 % of its budget of ${budget_usd} are spent",
    "budget.spent": "its budget of ${budget_usd} is spent",
    ASKS: "asks for {tool}, call {approval}: M here, or `sbx mcp approve {approval}`",
    "keep-awake.end": "it is not kept awake any more: {reason}",
}


# A kind and its data.
_Event = tuple[str, Mapping[str, object]]


@dataclass(frozen=True, slots=True)
class News:
    """What is new: events to write, by kind, and what the row is to remember of it."""

    told: Mapping[str, object]
    events: Sequence[_Event] = field(default_factory=list)


def trouble_words(event: Event) -> str:
    """What an event that somebody waits for means, in harmless words; empty for any other event."""
    words = _WORDS.get(event.kind, "")
    if event.kind == JOB_EXIT and isinstance(took_s := event.data.get("took_s"), int | float) and took_s >= LONG_S:
        return f"{harmless_line(event.subject)}: {_ended_words(event, took_s)}"
    if not words:
        return ""
    data = {key: harmless_line(str(value), limit=120) for key, value in event.data.items()}
    try:
        return f"{harmless_line(event.subject)}: {words.format_map(data)}"
    except KeyError:
        return f"{harmless_line(event.subject)}: {event.kind}"


def is_good_news(event: Event) -> bool:
    """Whether what somebody waits for went well."""
    return event.kind == JOB_EXIT and event.data.get("exit_code") == 0


def _ended_words(event: Event, took_s: float) -> str:
    job = harmless_line(str(event.data.get("job")))[:8]
    return f"job {job} ended with {event.data.get('exit_code')} after {short_age(timedelta(seconds=took_s))}"


def usage_news(told: Mapping[str, object], usage: Usage) -> News:
    """What a sample says that was not told yet; what is over may be told again."""
    now = dict(told)
    events: list[_Event] = []
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
    events += [*_restart_news(now, told, usage), *_clock_news(now, told, usage)]
    return News(now, events)


def _restart_news(now: dict[str, object], told: Mapping[str, object], usage: Usage) -> Iterator[_Event]:
    if not usage.server_id:
        return
    now["boot"], now["server"] = usage.boot_id, usage.server_id
    if "server" not in told or told["server"] == usage.server_id:
        return
    yield "trouble.server" if told.get("boot") == usage.boot_id else "trouble.boot", {}


def _clock_news(now: dict[str, object], told: Mapping[str, object], usage: Usage) -> Iterator[_Event]:
    if not usage.is_clock_off:
        now.pop("clock_off", None)
        return
    off_s = usage.clock_off_s or 0.0
    data = {"seconds": round(abs(off_s)), "way": "ahead of" if off_s > 0 else "behind"}
    if usage.clock_was_set:
        yield "trouble.clock-set", data
    elif not told.get("clock_off"):
        now["clock_off"] = True
        yield "trouble.clock-off", data


def silence_news(
    told: Mapping[str, object],
    silent: Iterable[tuple[Job, timedelta]],
    *,
    silent_after: timedelta = SILENT_AFTER,
    waits_after: timedelta = WAITS_AFTER,
) -> News:
    """The same of jobs that run and say nothing, with for how long; of those that wait for input sooner, and again."""
    listed = told.get("silent")
    known = [str(one) for one in listed] if isinstance(listed, list) else []
    events: list[_Event] = []
    for job, span in silent:
        is_waiting = job.awaits_input and not _AT_REST.fullmatch(job.command)
        # A job waits again once it has said something; of one that is silent, a person was told.
        key = f"{job.id}@{job.cursor}" if is_waiting else job.id
        if span < (waits_after if is_waiting else silent_after) or key in known:
            continue
        known.append(key)
        # Events are shown to everybody.
        data: dict[str, object] = {"job": job.id[:8], "program": program_of(job.command)}
        if not is_waiting:
            span_s = span.total_seconds()
            data["minutes"] = int(span_s // 60) if span_s >= 60 else round(span_s / 60, 2)
        events.append(("trouble.waiting" if is_waiting else "trouble.silent", data))
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
