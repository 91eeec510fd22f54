"""What a guest says it uses is taken as it is told, or as unknown; and looking at it keeps nothing awake."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from sbxtui.core.jobs import Job, JobState
from sbxtui.core.model import ContextName, IdlePolicy, SandboxId
from sbxtui.core.usage import may_look
from sbxtui.guest.metrics import decode_usage

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
IDLE = IdlePolicy(max_idle_s=600, suspended_s=60)


def job(state: JobState, *, ended_s_ago: float | None = None, begun_s_ago: float = 3600) -> Job:
    ended_at = None if ended_s_ago is None else NOW - timedelta(seconds=ended_s_ago)
    created_at = NOW - timedelta(seconds=begun_s_ago)
    return Job(
        ContextName("local"),
        SandboxId("microvm-1"),
        "j1",
        "boot",
        "make",
        "cli:you",
        created_at,
        state=state,
        ended_at=ended_at,
    )


def test_a_sandbox_that_nothing_suspends_may_always_be_looked_at() -> None:
    assert may_look(None, [], NOW)


@pytest.mark.parametrize(
    ("jobs", "expected"),
    [
        ([], False),
        ([job(JobState.RUNNING)], False),
        ([job(JobState.RUNNING, begun_s_ago=299)], True),
        ([job(JobState.EXITED, ended_s_ago=299)], True),
        ([job(JobState.EXITED, ended_s_ago=301)], False),
        ([job(JobState.EXITED, ended_s_ago=301), job(JobState.RUNNING, begun_s_ago=301)], False),
        ([job(JobState.EXITED)], False),
    ],
)
def test_one_that_falls_asleep_is_looked_at_for_half_its_window_after_a_job_began_or_ended(
    jobs: list[Job], expected: bool
) -> None:
    assert may_look(IDLE, jobs, NOW) is expected


def test_a_sample_is_read_as_it_was_told() -> None:
    told = {
        "at": 1_772_366_400.5,
        "source": "cgroup",
        "cpu": {"cores": 2, "percent": 12.5, "per_core_percent": [25, 0], "used_s": 3.5, "throttled_s": 0.25},
        "memory": {"used_bytes": 100, "limit_bytes": 400},
        "swap": {"used_bytes": 0},
        "disk": {"used_bytes": 7, "free_bytes": 8, "limit_bytes": 15},
        "net": {"rx_bytes": 1, "tx_bytes": 2},
        "pids": {"count": 5, "limit": 512},
        "load": [0.5, 0.25, 0.125],
        "oom_count": 1,
        "open_files": 30,
        "clock": {"jump_count": 2},
    }
    usage = decode_usage(told)
    assert usage.at == datetime.fromtimestamp(1_772_366_400.5, UTC)
    assert (usage.cpu_percent, usage.core_percents, usage.cores) == (12.5, (25.0, 0.0), 2.0)
    assert (usage.memory_bytes, usage.memory_limit_bytes, usage.memory_percent) == (100, 400, 25.0)
    assert (usage.received_bytes, usage.sent_bytes, usage.processes) == (1, 2, 5)
    assert (usage.load, usage.oom_kills, usage.clock_jumps) == ((0.5, 0.25, 0.125), 1, 2)


@pytest.mark.parametrize(
    "value",
    ["null", "[]", "true", '"\\u001b[2J"', "-1", "1e999", "NaN", "9" * 400, '{"percent": {}}', '{"percent": [1]}'],
)
def test_what_cannot_be_is_unknown(value: str) -> None:
    names = ("at", "cpu", "memory", "swap", "disk", "net", "pids", "load", "oom_count", "open_files", "clock")
    usage = decode_usage({name: json.loads(value) for name in names})
    assert usage.cpu_percent is usage.memory_bytes is usage.processes is usage.oom_kills is usage.memory_percent is None
    assert usage.load == usage.core_percents == ()
