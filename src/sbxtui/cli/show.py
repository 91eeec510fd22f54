"""Values as table cells and lines."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sbxtui.cli.fitting import GAP, Cut, padded, shortened, wrapped
from sbxtui.cli.output import Output, terminal_columns
from sbxtui.core.isolation import short_isolation
from sbxtui.core.jobs import Job
from sbxtui.core.model import Event, Sandbox
from sbxtui.core.pricing import Cost, cost_text
from sbxtui.core.text import harmless_line, reason_words, short_age
from sbxtui.services.targets import Outcome

if TYPE_CHECKING:
    from sbxtui.services.doctor import Check

JOB_COLUMNS = ("JOB", "SANDBOX", "STATE", "AGE", "BY", "COMMAND")
_SHORT_ID = 12
_MARKS = {"ok": "ok  ", "warn": "warn", "fail": "FAIL"}
_REASON_WIDTH = 60
_WIDE_REASON = 1000
SANDBOX_COLUMNS = ("NAME", "STATE", "AGE", "IMAGE", "NETWORK", "ISOLATION", "PER HOUR", "SO FAR", "ID")
# Any beginning of an id that only one sandbox has will do in its place, so it is cut without a mark.
SANDBOX_CUTS = (
    *(Cut("ID", 12, mark=""), Cut("STATE", 24), Cut("PER HOUR", 0), Cut("NETWORK", 16), Cut("SO FAR", 0)),
    Cut("STATE", 12),
    *(
        Cut("ID", 0),
        Cut("AGE", 0),
        Cut("IMAGE", 0),
        Cut("STATE", 9),
        Cut("NETWORK", 8),
        Cut("CONTEXT", 8),
        Cut("ISOLATION", 6),
        Cut("NAME", 12),
    ),
)
# What has no name is called by its id.
UNTRACKED_CUTS = tuple(cut for cut in SANDBOX_CUTS if (cut.column, cut.least) != ("ID", 0))
JOB_CUTS = (
    *(Cut("COMMAND", 24), Cut("BY", 8), Cut("SANDBOX", 16), Cut("BY", 0), Cut("AGE", 0)),
    *(Cut("COMMAND", 8), Cut("SANDBOX", 8)),
)
IMAGE_CUTS = (Cut("ARN", 24), Cut("ARN", 0), Cut("NAME", 24))
CONTEXT_CUTS = (Cut("ISOLATION", 24), Cut("PROFILE", 8), Cut("ISOLATION", 8), Cut("PROFILE", 0))


def sandbox_row(sandbox: Sandbox, cost: Cost | None = None, *, is_wide: bool = False) -> tuple[str, ...]:
    """A sandbox's cells for `SANDBOX_COLUMNS`; wide ones say the whole reason, as `inspect` does."""
    reason = harmless_line(reason_words(sandbox.state_reason), limit=_WIDE_REASON if is_wide else _REASON_WIDTH)
    state = sandbox.state.value.lower() + (f" ({reason})" if reason else "")
    return (
        sandbox.name or "(untracked)",
        state,
        short_age(datetime.now(UTC) - sandbox.created_at),
        sandbox.image_name,
        str(sandbox.facts.get("network") or "-"),
        short_isolation(harmless_line(str(sandbox.facts.get("isolation") or "-"))),
        *(("-", "-") if cost is None else (cost_text(cost.per_hour, cost), cost_text(cost.so_far, cost))),
        sandbox.id or "-",
    )


def event_line(event: Event, width: int = 0) -> str:
    """An event on one line for people; of a terminal `width` cells wide no more than there is room for."""
    columns = ((event.kind, 17), (event.subject, 16), (event.actor, 10))
    texts = [padded(harmless_line(text), width) for text, width in columns]
    told = {key: reason_words(value) if key == "reason" else value for key, value in event.data.items()}
    data = " ".join(f"{key}={_listed(value)}" for key, value in told.items() if value not in ("", None))
    when = f"{event.at.astimezone():%Y-%m-%d %H:%M:%S}"
    line = GAP.join([when, *texts, harmless_line(data, limit=220)]).rstrip()
    return shortened(line, width) if width else line


def _listed(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def job_row(job: Job) -> tuple[str, ...]:
    """A job's cells for `JOB_COLUMNS`."""
    state = job.state.value + (f" ({job.exit.exit_code})" if job.exit else "")
    age = short_age(datetime.now(UTC) - job.created_at)
    return job.id[:_SHORT_ID], job.sandbox or "-", state, age, job.actor or "-", job.label or job.command


def checks(out: Output, found: Sequence[Check]) -> int:
    """Show findings about this machine; the exit code is 1 when something is broken."""
    if out.is_json:
        out.json([{"name": one.name, "status": one.status, "words": one.words, "hint": one.hint} for one in found])
    width = terminal_columns()
    for one in found:
        for head, words in ((f"{_MARKS[one.status]}  {one.name:<12} ", one.words), (" " * 19, f"hint: {one.hint}")):
            if words != "hint: ":
                for line in wrapped(harmless_line(words, limit=_WIDE_REASON), head, width):
                    out.line(line)
    return 1 if any(one.status == "fail" for one in found) else 0


def outcomes(out: Output, results: Sequence[Outcome]) -> int:
    """Show what became of several sandboxes; the exit code is the first failure's, or 0."""
    if out.is_json:
        out.json([_outcome_json(one) for one in results])
    for one in results:
        if one.error is not None:
            if not out.is_json:
                out.error(one.error)
            continue
        out.line(one.name)
        if one.words:
            out.note(f"{one.name}: {one.words}")
    return next((one.error.exit_code for one in results if one.error), 0)


def _outcome_json(one: Outcome) -> dict[str, object]:
    if one.error is None:
        return {"name": one.name, "ok": True, "message": one.words}
    return {"name": one.name, "ok": False, "error": one.error.as_json()}
