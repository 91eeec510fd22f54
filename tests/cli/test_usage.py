"""`metrics` and `top`, on the real local cloud."""

from __future__ import annotations

import json
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.sbx import DEADLINE_S, Sbx
from tests.support.wrong_clock import wrong_clock

MIB = 2**20


def test_metrics_tell_each_resource_to_people_and_bytes_to_scripts(sbx: Sbx, app: str) -> None:
    shown = sbx.ok("metrics", app).out.splitlines()
    assert [line.split()[0] for line in shown[:5]] == ["cpu", "memory", "disk", "network", "processes"]

    found = sbx.ok("metrics", app, "--json").json
    assert found["name"] == app
    assert 0 < found["memory_bytes"] < found["memory_limit_bytes"] <= 512 * MIB
    assert found["cpu_percent"] is not None
    assert found["processes"] >= 1
    assert found["last_hour"]["cpu_percent"][-1] is not None and len(found["last_hour"]["memory_bytes"]) == 60


def test_watching_goes_on_until_it_is_interrupted(sbx: Sbx, app: str) -> None:
    watch = sbx.spawn("metrics", app, "--watch", "--interval", "1", "--json")
    assert watch.stdout is not None
    with watch:
        samples = [json.loads(watch.stdout.readline()) for _ in range(3)]
        watch.send_signal(signal.SIGINT)
        assert watch.wait(DEADLINE_S) == 130
        # Ctrl-C is how it ends: no error.
        assert watch.stderr is not None and watch.stderr.read().decode().splitlines() == ["stopped"]
    assert samples[0]["at"] < samples[1]["at"] < samples[2]["at"]


def test_a_sandbox_that_woke_with_another_time_is_told_of_and_a_clock_that_is_shared_is_left_alone(
    sbx: Sbx, app: str, tmp_path: Path
) -> None:
    # What the sandbox has is this machine's own time; it is the one who looks whose clock is wrong.
    late = replace(sbx, env={**sbx.env, **wrong_clock(tmp_path, -60).env})
    sbx.ok("stop", app)
    late.ok("start", app)
    told = [json.loads(line) for line in sbx.ok("events", app, "--json").out.splitlines()]
    (off,) = [one["data"] for one in told if one["kind"].startswith("trouble.clock")]
    assert (50 <= off["seconds"] <= 70, off["way"]) == (True, "ahead of")
    assert abs(int(sbx.ok("exec", app, "--", "date", "+%s").out) - time.time()) < 40


@pytest.mark.long
def test_top_puts_the_busiest_first_and_leaves_alone_what_it_would_keep_awake(sbx: Sbx, app: str) -> None:
    sbx.ok("create", "sleepy", "--memory", "512", "--idle", "60")
    busy = sbx.ok("exec", "-d", app, "--", "sh", "-c", "while :; do :; done").out
    try:
        rows = sbx.ok("top", "--json").json
    finally:
        sbx.ok("kill", app, busy, "-s", "KILL")
    assert [row["name"] for row in rows] == [app, "sleepy"]
    assert rows[0]["usage"]["cpu_percent"] > 1
    assert rows[1]["usage"] is None
    assert "keep it awake" in rows[1]["note"]

    # A person who asks about one sandbox is answered.
    assert sbx.ok("metrics", "sleepy", "--json").json["memory_bytes"] > 0

    sbx.ok("stop", "sleepy")
    assert [row["note"] for row in sbx.ok("top", "--json", "--sort", "name").json] == [None, "suspended"]
    refused = sbx("metrics", "sleepy")
    assert (refused.code, "sbx start sleepy" in refused.err) == (5, True)
    assert sbx.ok("top", "-q").out.splitlines() == [app, "sleepy"]
    sbx.ok("rm", "sleepy", "--yes")


def test_what_makes_no_sense_is_refused_with_what_would(sbx: Sbx, app: str) -> None:
    assert sbx("top", "--sort", "colour").code == 2
    assert "memory" in sbx("top", "--sort", "colour").err
    assert sbx("metrics", app, "--watch", "--interval", "0").code == 2
    assert sbx("metrics", "nobody").code == 4
