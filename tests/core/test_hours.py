"""The last hour of what a sandbox used, as people and programs are told it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from sbxtui.core.hours import COLUMNS, cores_text, hour_json, hour_lines
from sbxtui.core.usage import Usage
from tests.support.fake_seeing import GIB

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def sample(minutes_ago: float, cpu_percent: float | None) -> Usage:
    at = NOW - timedelta(minutes=minutes_ago)
    return Usage(at, cpu_percent=cpu_percent, memory_bytes=GIB, memory_limit_bytes=2 * GIB)


def test_an_hour_is_a_line_of_minutes_and_what_nobody_saw_is_blank() -> None:
    history = [sample(70, 100.0), sample(29.5, 50.0), sample(0.5, None), sample(0, 100.0)]
    cpu, memory = hour_lines(history, NOW)
    assert cpu == f"cpu 1 h    [{' ' * 30}▄{' ' * 28}█]"
    assert memory == f"memory 1 h [{' ' * 30}▄{' ' * 28}▄]"
    assert len(cpu) <= 80
    told = hour_json(history, NOW)
    assert told["column_s"] == 60
    assert told["cpu_percent"] == [*[None] * 30, 50.0, *[None] * 28, 100.0]
    assert told["memory_bytes"] == [*[None] * 30, GIB, *[None] * 28, GIB]


def test_one_minute_draws_nothing_and_many_cores_have_no_numbers() -> None:
    assert hour_lines([sample(0.2, 1.0), sample(0, 2.0)], NOW) == []
    assert hour_lines([], NOW) == []
    assert cores_text((0.0, 50.0, 100.0)) == "▁▄█  0 50 100 %"
    assert cores_text([100.0] * 64) == "█" * 64
    assert hour_json([], NOW)["cpu_percent"] == [None] * COLUMNS
