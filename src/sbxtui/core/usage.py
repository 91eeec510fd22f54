"""What a sandbox uses, as its guest says it, and whether its guest may be asked without keeping it awake."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from sbxtui.core.jobs import Job
from sbxtui.core.model import IdlePolicy


@dataclass(frozen=True, slots=True)
class Usage:
    """One sample of a guest. None is unknown; sizes are bytes, times seconds.

    `cpu_percent` is over the time since the sample before, of all `cores` together: 100 is all of them busy. Totals
    (`cpu_s`, `throttled_s`, received, sent, `oom_kills`) count since the sandbox began. `source` says where the
    figures come from: `machine`, `cgroup` or `processes`.
    """

    at: datetime
    source: str = ""
    cores: float | None = None
    cpu_percent: float | None = None
    core_percents: tuple[float, ...] = ()
    cpu_s: float | None = None
    throttled_s: float | None = None
    memory_bytes: int | None = None
    memory_limit_bytes: int | None = None
    swap_bytes: int | None = None
    disk_bytes: int | None = None
    disk_free_bytes: int | None = None
    disk_limit_bytes: int | None = None
    received_bytes: int | None = None
    sent_bytes: int | None = None
    processes: int | None = None
    processes_limit: int | None = None
    load: tuple[float, ...] = ()
    oom_kills: int | None = None
    open_files: int | None = None
    clock_jumps: int | None = None

    @property
    def memory_percent(self) -> float | None:
        """Of its limit."""
        if self.memory_bytes is None or not self.memory_limit_bytes:
            return None
        return 100.0 * self.memory_bytes / self.memory_limit_bytes


def may_look(idle: IdlePolicy | None, jobs: Iterable[Job], now: datetime, *, scale: float = 1.0) -> bool:
    """Whether looking leaves a sandbox's life as it is. Watching is not work, and every request counts as traffic.

    It does where nothing suspends it, while a job runs, and for half the idle window after the last one ended. `scale`
    is how much faster than the platform's its windows pass.
    """
    if idle is None:
        return True
    half = timedelta(seconds=idle.max_idle_s / 2 / scale)
    return any(not job.is_over or now - (job.ended_at or job.created_at) < half for job in jobs)
