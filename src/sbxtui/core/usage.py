"""What a sandbox uses, as its guest says it, and whether its guest may be asked without keeping it awake."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from sbxtui.core.model import IdlePolicy
from sbxtui.core.values import dataclass

if TYPE_CHECKING:
    from sbxtui.core.jobs import Job

# More than a clock is off that is looked after.
CLOCK_OFF_S = 2.0
# What faces say in place of what they do not ask a sandbox for.
RESTING = "not asked: that would keep it awake"


@dataclass(frozen=True, slots=True)
class Usage:
    """One sample of a guest. None is unknown; sizes are bytes, times seconds.

    `cpu_percent` is over the time since the sample before, of all `cores` together: 100 is all of them busy. Totals
    (`cpu_s`, `throttled_s`, received, sent, `oom_kills`) count since the sandbox began. `source` says where the
    figures come from: `machine`, `cgroup` or `processes`. `boot_id` and `server_id` are other ones once the sandbox, or
    its guest's server, was started again. `clock_off_s` is how far its clock is ahead of this machine's, beyond what
    the way of the answer explains; `clock_was_set` says that it has been put right since.
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
    boot_id: str = ""
    server_id: str = ""
    clock_off_s: float | None = None
    clock_was_set: bool = False

    @property
    def is_clock_off(self) -> bool:
        """Whether its clock tells another time than this machine's."""
        return abs(self.clock_off_s or 0.0) >= CLOCK_OFF_S

    @property
    def memory_percent(self) -> float | None:
        """Of its limit."""
        if self.memory_bytes is None or not self.memory_limit_bytes:
            return None
        return 100.0 * self.memory_bytes / self.memory_limit_bytes


def unnoticed_s(idle: IdlePolicy | None, scale: float = 1.0) -> float:
    """For how many seconds after it last did something a sandbox may be asked: half its idle window, or for ever.

    `scale` is how much faster than the platform's its windows pass.
    """
    return math.inf if idle is None else idle.max_idle_s / 2 / scale


def may_look(idle: IdlePolicy | None, jobs: Iterable[Job], now: datetime, *, scale: float = 1.0) -> bool:
    """Whether looking leaves a sandbox's life as it is. Watching is not work, and every request counts as traffic.

    It does where nothing suspends it, and for half the idle window after a job began or ended.
    """
    if idle is None:
        return True
    span = timedelta(seconds=unnoticed_s(idle, scale))
    return any(now - (job.ended_at or job.created_at) < span for job in jobs)
