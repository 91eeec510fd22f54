"""The local cloud and the runner are killed at named points; the next sbx starts them again and finds everything."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sbxtui.control.local import find_local_cloud
from sbxtui.services.runnerctl import find_runner
from sbxtui.settings import load
from tests.support.sbx import DEADLINE_S, Sbx

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
RECORDS = "sbxtui.localcloud.records:RecordStore"
VM = "sbxtui.localcloud.vms:Vm"

CREATE_POINTS = [
    f"{RECORDS}.save:before",
    f"{RECORDS}.save:after",
    f"{VM}.launch:before",
    "sbxtui.localcloud.vms:greet:before",
    "sbxtui.localcloud.vms:greet:after",
    f"{VM}.launch:after",
]
LIFE_POINTS = [
    ("stop", f"{VM}.suspend:before"),
    ("stop", f"{VM}._suspend:before"),
    ("stop", f"{VM}._suspend:after"),
    ("start", f"{VM}.resume:before"),
    ("start", f"{VM}._resume:after"),
]
FORK_POINTS = [f"{VM}.copy_to:before", f"{VM}.copy_to:after"]
REMOVE_POINTS = [f"{VM}.terminate:before", f"{VM}._end_keeper:before", f"{VM}._end_keeper:after"]

numbers = itertools.count(1)


@contextmanager
def doomed_cloud(sbx: Sbx, point: str) -> Iterator[subprocess.Popen[bytes]]:
    """A local cloud of this home that dies at `point`; the one that served is stopped, its sandboxes live on."""
    sbx("local", "stop")
    home = load(sbx.environment(), cwd=sbx.home).home
    command = [sys.executable, "-m", "tests.support.killed_at", point, "sbxtui.localcloud"]
    command += ["--home", str(home.state_dir), "--trees", str(home.trees_dir), "--sockets", str(home.socket_dir)]
    command += ["--logs", str(home.log_dir)]
    process = subprocess.Popen(command, cwd=ROOT, env=sbx.environment(), stdin=subprocess.DEVNULL)
    try:
        while (cloud := find_local_cloud(home)) is None or cloud.pid != process.pid:
            assert process.poll() is None, f"the local cloud ended before {point}"
        yield process
        assert process.wait(DEADLINE_S) == -signal.SIGKILL, f"{point} was not reached"
    finally:
        process.kill()
        process.wait()


def states(sbx: Sbx) -> dict[str, str]:
    """Name (or id of an untracked machine) → state."""
    return {row["name"] or row["id"]: row["state"] for row in sbx.ok("ls", "--json").json}


@pytest.mark.parametrize("point", CREATE_POINTS)
def test_a_cloud_killed_while_it_launches_still_gives_the_sandbox(sbx: Sbx, point: str) -> None:
    name = f"c{next(numbers)}"
    with doomed_cloud(sbx, point):
        created = sbx("create", name, "-m", "512")
    assert created.code in (0, 7), created.err
    assert states(sbx) == {name: "RUNNING"}
    assert sbx.ok("exec", name, "--", "echo", "alive").out == "alive"
    sbx.ok("rm", name, "--yes")


@pytest.mark.parametrize("point", FORK_POINTS)
def test_a_cloud_killed_while_it_forks_still_gives_the_fork_and_the_first_runs_on(sbx: Sbx, point: str) -> None:
    name = f"f{next(numbers)}"
    sbx.ok("create", name, "-m", "512")
    sbx.ok("exec", name, "--", "sh", "-c", "echo kept > note")
    with doomed_cloud(sbx, point):
        sbx("fork", name, "twin")
    assert states(sbx) == {name: "RUNNING", "twin": "RUNNING"}
    assert [sbx.ok("fs", "cat", each, "note").out for each in (name, "twin")] == ["kept"] * 2
    sbx.ok("rm", name, "twin", "--yes")


@pytest.mark.parametrize(("verb", "point"), LIFE_POINTS)
def test_a_cloud_killed_while_it_suspends_or_resumes_keeps_memory_and_files(sbx: Sbx, verb: str, point: str) -> None:
    name = f"s{next(numbers)}"
    sbx.ok("create", name, "-m", "512")
    sbx.ok("exec", name, "--", "sh", "-c", "echo kept > note")
    if verb == "start":
        sbx.ok("stop", name)
    with doomed_cloud(sbx, point):
        sbx(verb, name)
    sbx.ok("start", name)
    assert sbx.ok("fs", "cat", name, "note").out == "kept"
    sbx.ok("rm", name, "--yes")


@pytest.mark.parametrize("point", REMOVE_POINTS)
def test_a_cloud_killed_while_it_terminates_leaves_nothing_after_a_second_rm(sbx: Sbx, point: str) -> None:
    name = f"r{next(numbers)}"
    sbx.ok("create", name, "-m", "512")
    with doomed_cloud(sbx, point):
        sbx("rm", name, "--yes")
    assert sbx("rm", name, "--yes").code in (0, 4)
    assert states(sbx) == {}


def test_a_killed_cloud_is_started_again_and_its_sandboxes_answer(sbx: Sbx) -> None:
    sbx.ok("create", "survivor", "-m", "512")
    os.kill(sbx.ok("local", "status", "--json").json["pid"], signal.SIGKILL)
    assert sbx.ok("exec", "survivor", "--", "echo", "here").out == "here"
    assert states(sbx) == {"survivor": "RUNNING"}
    sbx.ok("rm", "survivor", "--yes")


def test_a_killed_runner_is_replaced_by_the_next_look(sbx: Sbx) -> None:
    run = sbx.spawn("run", "-m", "512", "--", "sh", "-c", "echo up; sleep 60")
    assert run.stdout is not None
    assert run.stdout.readline() == b"up\n"
    runner = find_runner(load(sbx.environment(), cwd=sbx.home).home)
    assert runner is not None
    os.kill(runner.pid, signal.SIGKILL)
    run.kill()
    run.communicate()
    looks = (states(sbx) for _ in range(40))
    assert any(seen == {} for seen in looks)


def test_the_runner_ends_the_sandbox_of_a_killed_run_without_anybody_looking(sbx: Sbx) -> None:
    run = sbx.spawn("run", "-m", "512", "--name", "orphan", "--", "sh", "-c", "echo up; sleep 60")
    assert run.stdout is not None
    assert run.stdout.readline() == b"up\n"
    follower = sbx.spawn("events", "--follow", "--tail", "0", "--json", "orphan")
    assert follower.stdout is not None
    run.kill()
    run.communicate()
    assert b"sandbox.removed" in follower.stdout.readline()
    follower.kill()
    follower.communicate()
