"""`cost`, `budget` and `keep-awake`, on a local cloud whose windows pass ten times as fast."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.sbx import DEADLINE_S, Sbx, sbx_home

# The shortest idle window, a minute, is six seconds here; an hour is six minutes.
SCALE = 10
WINDOW_S = 60 / SCALE


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sbx]:
    """The home of this file's tests."""
    with sbx_home(tmp_path_factory.mktemp("home"), SBX_TIME_SCALE=str(SCALE)) as own:
        yield own


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.2)


def events(sbx: Sbx, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in sbx.ok("events", name, "--json").out.splitlines()]


def test_lists_tell_cost_and_life_and_a_budget_at_the_launch_is_a_shorter_life(quick: Sbx) -> None:
    quick.ok("create", "paid", "--memory", "512", "--budget", "0.05", "--idle", "300")
    (row,) = quick.ok("ls", "--json").json
    assert row["cost"]["usd_per_hour"] == pytest.approx(0.0315, abs=0.0002)
    assert row["cost"] | {"budget_usd": 0.05, "paid": False, "estimate": True} == row["cost"]
    assert 0 < row["cost"]["usd_so_far"] < row["cost"]["usd_at_cap"] < 0.05
    assert row["life"]["idle_s"] == 300 and row["life"]["suspends_at"] < row["life"]["ends_at"]
    assert 1300 < quick.ok("inspect", "paid", "--json").json["record"]["max_duration_s"] < 1450

    quick.ok("exec", "paid", "--", "true")
    whole = quick.ok("cost", "paid", "--json").json
    assert whole["sandboxes"][0]["cost"]["usd_so_far"] > row["cost"]["usd_so_far"]
    assert [job["command"] for job in whole["jobs"]] == ["true"] and whole["jobs"][0]["usd"] < 0.001
    shown = quick.ok("cost")
    assert "paid" in shown.out and "would cost on AWS" in shown.err
    refused = quick("create", "poor", "--memory", "512", "--budget", "0.0001")
    assert (refused.code, "smaller --memory" in refused.err) == (2, True)
    quick.ok("rm", "paid", "--yes")


@pytest.mark.long
def test_a_budget_warns_and_then_suspends(quick: Sbx) -> None:
    quick.ok("create", "poor", "--memory", "512")
    told = quick.ok("budget", "poor", "0.0014")
    assert "needs this machine" in told.err
    quick.ok("wait", "poor", "--for", "suspended", "--timeout", "60")
    kinds = [one["kind"] for one in events(quick, "poor") if one["actor"] == "runner"]
    assert kinds == ["budget.warning", "budget.spent", "sandbox.suspend"]
    (link,) = quick.ok("cost", "poor", "--json").json["sandboxes"]
    assert link["cost"]["usd_so_far"] >= 0.0014
    quick.ok("budget", "poor", "--clear")
    quick.ok("rm", "poor", "--yes")


def told_of(sbx: Sbx, name: str) -> list[str]:
    """The events of a sandbox's log; it is woken first, for it may have been suspended since it was last asked."""
    sbx.ok("start", name)
    log = sbx("logs", name, "--json").out
    return [line["text"] for line in map(json.loads, log.splitlines()) if line["channel"] == "event"]


@pytest.mark.slow
def test_a_silent_job_is_suspended_unless_it_is_kept_awake_and_only_as_long_as_it_runs(quick: Sbx) -> None:
    for name in ("kept", "left"):
        quick.ok("create", name, "--memory", "512", "--idle", "60")
    assert quick("keep-awake", "kept", "--until", "job").code == 5
    quick.ok("keep-awake", "kept", "--until", "1h")
    # Many short sleeps: one long one would be over by the clock when its sandbox wakes.
    silent = ("--", "sh", "-c", f"i=0; while [ $i -lt {round(6 * WINDOW_S)} ]; do sleep 0.5; i=$((i+1)); done")
    jobs = {name: quick.ok("exec", "-d", name, *silent).out for name in ("kept", "left")}
    quick.ok("keep-awake", "kept", "--until", "job", "--budget", "1")
    quick.ok("wait", "left", "--for", "suspended", "--timeout", "60")

    def ends() -> list[str]:
        return [one["data"]["reason"] for one in events(quick, "kept") if one["kind"] == "keep-awake.end"]

    until(ends)
    assert ends() == ["no job runs any more"]
    (link,) = quick.ok("keep-awake", "--json").json
    assert (link["name"], link["state"], link["until"]) == ("kept", "over", "job")
    quick.ok("wait", "kept", "--for", "suspended", "--timeout", "60")
    for name, was_suspended in (("kept", False), ("left", True)):
        end = f"job {jobs[name][:8]} ended with 0"
        while end not in (told := told_of(quick, name)):
            pass
        began = next(at for at, text in enumerate(told) if text.startswith(f"job {jobs[name][:8]} began"))
        ended = told.index(end)
        assert any("resumed" in text for text in told[began:ended]) is was_suspended, told
    quick.ok("rm", "kept", "left", "--yes")
