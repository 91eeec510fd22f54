"""What a sandbox takes with it when it is removed, in lines for the dialog that asks."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sbxtui.core.jobs import Job, JobState
from sbxtui.core.text import harmless_line, short_age

_MOST_JOBS = 5


def loss_lines(jobs: Sequence[Job], problems: Sequence[str], now: datetime) -> list[str]:
    """The commands that would be ended, newest last, and what could not be asked. Harmless."""
    going = [job for job in jobs if not job.is_over]
    lines = [_line(job, now) for job in going[-_MOST_JOBS:]]
    if hidden := len(going) - len(lines):
        lines.insert(0, f"{hidden} more running commands")
    return [*lines, *(f"? {harmless_line(problem, limit=200)}" for problem in problems)]


def _line(job: Job, now: datetime) -> str:
    doubt = ", as last known" if job.state is JobState.UNKNOWN else ""
    return f"ends `{harmless_line(job.command, limit=120)}` ({short_age(now - job.created_at)}{doubt})"
