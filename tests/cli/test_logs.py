"""`logs`, on the real local cloud: whole over every cut, and looking keeps nothing awake."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.killed_server import kill_server
from tests.support.sbx import DEADLINE_S, Sbx, sbx_home

# A minute of the platform is two seconds here: the shortest idle window.
SCALE = "30"


@pytest.fixture
def quick(tmp_path: Path) -> Iterator[Sbx]:
    """A home whose idle windows pass 30 times as fast."""
    with sbx_home(tmp_path / "home", SBX_TIME_SCALE=SCALE) as own:
        yield own


def test_lines_of_all_commands_are_chosen_by_job_text_time_and_number(sbx: Sbx, app: str) -> None:
    sbx.ok("exec", app, "--", "sh", "-c", r"echo one; printf 'red \033[31mtwo\033[0m\n' >&2; printf three")
    found = [json.loads(line) for line in sbx.ok("logs", app, "--json").out.splitlines()]
    said = [one for one in found if one["channel"] in ("out", "err")]
    assert {(one["channel"], one["text"]) for one in said[-3:]} == {
        ("out", "one"), ("err", "red \x1b[31mtwo\x1b[0m"), ("out", "three"),
    }  # fmt: skip
    assert found[-1]["text"].endswith("ended with 0")
    job = said[-1]["job"]
    assert sbx.ok("logs", app, "--job", job[:12], "--grep", "^t", "-q").out == "three"
    shown = sbx.ok("logs", app, "--job", job, "--tail", "4").out.splitlines()
    assert [line.split("  ", 2)[1].strip() for line in shown] == [job[:8], job[:8], job[:8], "guest"]
    assert any(line.endswith("red two") for line in shown), "escapes reach no terminal"
    assert "\x1b[31mtwo" in sbx.ok("logs", app, "--raw", "--grep", "red").out
    assert sbx.ok("logs", app, "--until", "1h").out == ""
    assert len(sbx.ok("logs", app, "--since", "1h", "--json").out.splitlines()) == len(found)


def test_what_makes_no_sense_is_refused_with_what_would(sbx: Sbx, app: str) -> None:
    assert sbx("logs", app, "--grep", "(").code == 2
    sbx.ok("exec", app, "--", "sh", "-c", "printf %060d 0 | tr 0 a; echo b")
    assert "came to no end" in sbx("logs", app, "--grep", "(a+)+$").err
    assert "2h30m" in sbx("logs", app, "--since", "yore").err
    assert sbx("logs", app, "--log-group", "x").code == 2
    assert sbx("logs", "nobody").code == 4


def test_the_platform_keeps_what_the_guest_printed(sbx: Sbx, app: str) -> None:
    lines = [json.loads(line) for line in sbx.ok("logs", app, "--source", "cloudwatch", "--json").out.splitlines()]
    assert any("listening on port" in one["text"] for one in lines)
    assert {one["source"] for one in lines} == {"cloudwatch"}
    assert len(sbx.ok("logs", app, "--source", "cloudwatch", "--tail", "1").out.splitlines()) == 1
    none = sbx("logs", app, "--source", "build", "--json")
    assert (none.code, "build" in none.error["message"]) == (4, True)
    other = sbx("logs", app, "--source", "cloudwatch", "--log-group", "/aws/other")
    assert other.code == 4 and "no log group /aws/other" in other.err, other.err


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.05)


class Follower:
    """`sbx logs --follow --json`, and what it said so far."""

    def __init__(self, sbx: Sbx, name: str, file: Path) -> None:
        self._file = file
        with file.open("wb") as out:
            self.process = subprocess.Popen(
                [*sbx.command.split(), "logs", name, "--follow", "--json"],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.DEVNULL,
                env=sbx.environment(),
                cwd=sbx.home,
            )

    def lines(self) -> list[dict[str, Any]]:
        """Whole lines so far."""
        return [json.loads(line) for line in self._file.read_text().split("\n")[:-1]]

    def said(self) -> list[str]:
        """The output among them."""
        return [line["text"] for line in self.lines() if line["channel"] == "out"]

    def stop(self) -> None:
        """As Ctrl-C does."""
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(DEADLINE_S) == 130


@pytest.mark.long
def test_following_loses_nothing_over_a_killed_guest_a_suspend_and_a_killed_local_cloud(
    quick: Sbx, tmp_path: Path
) -> None:
    quick.ok("create", "app", "--memory", "512")
    count = 2000
    loop = f"i=0; while [ $i -lt {count} ]; do echo $i; i=$((i+1)); [ -e go ] || sleep 0.02; done"
    follower = Follower(quick, "app", tmp_path / "followed")
    try:
        quick.ok("exec", "-d", "app", "--", "sh", "-c", loop)
        for cut in (kill_server, suspend_and_resume, kill_local_cloud):
            seen = len(follower.said())
            until(lambda seen=seen: len(follower.said()) > seen + 10)  # type: ignore[misc]
            cut(quick)
        quick.ok("exec", "app", "--", "touch", "go")
        until(lambda: any(line["text"].endswith("ended with 0") for line in follower.lines()[-2:]))
        until(lambda: len(follower.said()) >= count)
        follower.stop()
    finally:
        follower.process.kill()
    assert follower.said() == [str(number) for number in range(count)]
    assert not [line for line in follower.lines() if line["channel"] == "gap"]


def suspend_and_resume(sbx: Sbx) -> None:
    sbx.ok("stop", "app")
    sbx.ok("start", "app")


def kill_local_cloud(sbx: Sbx) -> None:
    os.kill(sbx.ok("local", "status", "--json").json["pid"], signal.SIGKILL)
    sbx.ok("ls")
