"""The jobs of a sandbox as lines of a list. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from sbxtui.core.jobs import Job, JobState
from sbxtui.core.text import harmless_line, iso, short_age
from sbxtui.tui.endings import state_words
from sbxtui.tui.widgets.columns import fitted
from sbxtui.tui.widgets.rows import Row

SHORT_ID = 8
_STATE_WIDTH, _AGE_WIDTH, _AUTHOR_WIDTH = 11, 4, 16
_MIN_AUTHOR, _MIN_COMMAND = 8, 24
_LIVE = (JobState.RUNNING, JobState.STARTING)


def ordered(jobs: Iterable[Job]) -> list[Job]:
    """What runs first, each newest first."""
    newest = sorted(jobs, key=lambda job: (job.created_at, job.id), reverse=True)
    return sorted(newest, key=lambda job: job.state not in _LIVE)


def head_text(width: int, authors: int = _AUTHOR_WIDTH) -> str:
    """What stands above the columns of `job_row`; `authors` is how long the longest of them is."""
    author_width = _author_width(width, authors)
    author = f"{'BY':<{author_width}} " if author_width else ""
    return f"{'JOB':<{SHORT_ID}} {'STATE':<{_STATE_WIDTH}} {'AGE':>{_AGE_WIDTH}} {author}COMMAND"


def job_row(job: Job, now: datetime, width: int, authors: int = _AUTHOR_WIDTH) -> Row:
    """A job in a line of `width` cells: id, state or how it ended, age, author, command; `authors` as for the head."""
    words, tone = state_words(job)
    author_width = _author_width(width, authors)
    room = width - SHORT_ID - _STATE_WIDTH - _AGE_WIDTH - author_width - 3 - bool(author_width)
    return Row(
        job.id,
        (
            (fitted(job.id[:SHORT_ID], SHORT_ID) + " ", "key"),
            (fitted(words, _STATE_WIDTH) + " ", tone),
            (f"{short_age(now - job.created_at):>{_AGE_WIDTH}} ", "muted"),
            (fitted(harmless_line(job.actor), author_width) + " " if author_width else "", "muted"),
            (fitted(harmless_line(job.label or job.command), max(0, room)), ""),
        ),
    )


def count_text(jobs: Iterable[Job]) -> str:
    """`2 running · 5 ended`."""
    known = list(jobs)
    running, over = sum(job.state in _LIVE for job in known), sum(job.is_over for job in known)
    unknown = len(known) - running - over
    counts = ((running, "running"), (over, "ended"), (unknown, "unknown"))
    return " · ".join(f"{count} {word}" for count, word in counts if count)


def details_of(job: Job, now: datetime) -> str:
    """A job as a page."""
    kinds = ["a terminal"] * job.has_terminal + ["input"] * (job.has_stdin and not job.has_terminal)
    facts = [
        ("job", job.id),
        ("command", job.command),
        ("label", job.label),
        ("by", job.actor),
        ("state", state_words(job)[0]),
        ("began", f"{iso(job.created_at)}, {short_age(now - job.created_at)} ago"),
        ("ended", iso(job.ended_at) if job.ended_at else ""),
        ("took", f"{job.exit.duration_s:.1f} s" if job.exit else ""),
        ("shell", job.shell),
        ("has", " and ".join(kinds) or "no input"),
        ("output", f"{job.cursor:,} bytes"),
    ]
    return "\n".join(f"{label:<8} {harmless_line(value)}" for label, value in facts if value)


def _author_width(width: int, authors: int) -> int:
    spare = width - SHORT_ID - _STATE_WIDTH - _AGE_WIDTH - 4
    room = 0 if spare < 2 * _MIN_AUTHOR else max(_MIN_AUTHOR, min(_AUTHOR_WIDTH, spare - _MIN_COMMAND))
    return min(room, authors)
