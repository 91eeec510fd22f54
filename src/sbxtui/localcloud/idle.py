"""Time: what a sandbox is due for next. Pure arithmetic; `vms` sleeps and acts.

Windows are the platform's seconds divided by the time scale. Idle means no byte through the endpoint, nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import assert_never

from sbxtui.core.model import SandboxState
from sbxtui.localcloud.records import Record

RETENTION_S = 86_400
CLOSE_ENDPOINT_AFTER_S = 60


class Step(StrEnum):
    """What happens when the time is over."""

    SUSPEND = "suspend"
    TERMINATE = "terminate"
    CLOSE_ENDPOINT = "close-endpoint"
    PRUNE = "prune"


@dataclass(frozen=True, slots=True)
class Due:
    """The next step and the seconds until it; zero or less: now. `reason` is an end's `stateReason`."""

    step: Step
    in_s: float
    reason: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Clock:
    """What time it is for one sandbox. `idle_s` is how long its endpoint has been silent, in real seconds.

    What ended before `forget_before` is due at once: somebody asked for it.
    """

    now: datetime
    idle_s: float
    time_scale: float = 1.0
    is_endpoint_open: bool = True
    forget_before: datetime | None = None

    def until(self, since: datetime, window_s: float) -> float:
        """Real seconds until a window that began at `since` is over."""
        return window_s / self.time_scale - (self.now - since).total_seconds()

    def until_idle(self, window_s: float) -> float:
        """Real seconds until the endpoint has been silent for a window."""
        return window_s / self.time_scale - self.idle_s


def next_due(record: Record, clock: Clock) -> Due | None:
    """The earliest step, or None while nothing but an event can change this sandbox."""
    steps = [due for due in (_idle_due(record, clock), _cap_due(record, clock), _end_due(record, clock)) if due]
    return min(steps, key=lambda due: due.in_s, default=None)


def _idle_due(record: Record, clock: Clock) -> Due | None:
    if record.idle is None:
        return None
    match record.state:
        case SandboxState.RUNNING:
            # A suspended life of zero seconds means: end it instead of suspending it.
            step = Step.SUSPEND if record.idle.suspended_s > 0 else Step.TERMINATE
            reason = f"Success. Ended after {record.idle.max_idle_s} s without traffic."
            return Due(step, clock.until_idle(record.idle.max_idle_s), reason)
        case SandboxState.SUSPENDED:
            since = record.suspended_at or record.started_at
            reason = f"Success. Ended after {record.idle.suspended_s} s suspended."
            return Due(Step.TERMINATE, clock.until(since, record.idle.suspended_s), reason)
        case (
            SandboxState.PENDING
            | SandboxState.SUSPENDING
            | SandboxState.TERMINATING
            | SandboxState.TERMINATED
            | SandboxState.UNKNOWN
        ):
            return None
        case _:
            assert_never(record.state)


def _cap_due(record: Record, clock: Clock) -> Due | None:
    if record.max_duration_s is None or record.state.is_gone:
        return None
    reason = f"Success. Ended by its maximum duration of {record.max_duration_s} s."
    return Due(Step.TERMINATE, clock.until(record.started_at, record.max_duration_s), reason)


def _end_due(record: Record, clock: Clock) -> Due | None:
    if record.state is not SandboxState.TERMINATED or record.terminated_at is None:
        return None
    if clock.forget_before is not None and record.terminated_at <= clock.forget_before:
        return Due(Step.CLOSE_ENDPOINT if clock.is_endpoint_open else Step.PRUNE, 0)
    if clock.is_endpoint_open:
        return Due(Step.CLOSE_ENDPOINT, clock.until(record.terminated_at, CLOSE_ENDPOINT_AFTER_S))
    return Due(Step.PRUNE, clock.until(record.terminated_at, RETENTION_S))
