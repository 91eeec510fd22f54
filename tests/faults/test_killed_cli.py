"""The command line is killed at named points; whoever looks next finds every sandbox and every name."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.sbx import DEADLINE_S, Sbx

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
REGISTRY = "sbxtui.store.registry:Registry"
CONTROL = "sbxtui.control.api:ControlApi"
GUEST = "sbxtui.guest.client:GuestClient"

# Point, and whether the name must be there afterwards: it is promised from the reservation on.
CREATE_POINTS = [
    (f"{REGISTRY}.reserve:before", False),
    (f"{REGISTRY}.reserve:after", True),
    (f"{CONTROL}.run:before", True),
    (f"{CONTROL}.run:after", True),
    (f"{REGISTRY}.bind:before", True),
    (f"{REGISTRY}.bind:after", True),
    (f"{GUEST}.wait_until_ready:before", True),
    (f"{GUEST}.wait_until_ready:after", True),
    (f"{GUEST}.launch:before", True),
    (f"{GUEST}.launch:after", True),
    (f"{REGISTRY}.change_facts:before", True),
    (f"{REGISTRY}.change_facts:after", True),
]
REMOVE_POINTS = [
    f"{CONTROL}.terminate:before",
    f"{CONTROL}.terminate:after",
    f"{REGISTRY}.remove_row:before",
    f"{REGISTRY}.remove_row:after",
]
RUN_POINTS = [
    f"{REGISTRY}.reserve:after",
    f"{CONTROL}.run:after",
    f"{GUEST}.launch:after",
    f"{GUEST}.exec:before",
    f"{GUEST}.exec:after",
    f"{CONTROL}.terminate:after",
]

numbers = itertools.count(1)


def killed(sbx: Sbx, point: str, *words: str) -> None:
    """Run a line that dies at `point`."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.killed_at", point, "sbxtui", *words],
        capture_output=True,
        timeout=DEADLINE_S,
        env=sbx.environment(),
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, f"{point} was not reached: {done.stderr.decode()}"


def fleet(sbx: Sbx) -> dict[str, str]:
    """Name (or id of an untracked machine) → state, after whatever recovery `ls` does."""
    return {row["name"] or row["id"]: row["state"] for row in sbx.ok("ls", "--json").json}


@pytest.mark.parametrize(("point", "is_promised"), CREATE_POINTS)
def test_a_killed_create_leaves_a_working_sandbox_or_a_free_name(sbx: Sbx, point: str, is_promised: bool) -> None:
    name = f"c{next(numbers)}"
    before = fleet(sbx)
    killed(sbx, point, "create", name, "-m", "512", "--env", "GREETING=hello")
    after = fleet(sbx)
    assert after == before | ({name: "RUNNING"} if is_promised else {})
    if is_promised:
        assert sbx.ok("exec", name, "--", "sh", "-c", "echo $GREETING").out == "hello"
        sbx.ok("rm", name, "--yes")
    assert sbx.ok("create", name, "-m", "512").out == name
    sbx.ok("rm", name, "--yes")


@pytest.mark.parametrize("point", [f"{REGISTRY}.reserve:after", f"{CONTROL}.run:after"])
def test_a_killed_fork_is_finished_by_whoever_looks_next(sbx: Sbx, point: str) -> None:
    name = f"f{next(numbers)}"
    sbx.ok("create", name, "-m", "512")
    sbx.ok("exec", name, "--", "sh", "-c", "echo kept > note")
    killed(sbx, point, "fork", name, "twin")
    assert fleet(sbx) == {name: "RUNNING", "twin": "RUNNING"}
    assert sbx.ok("fs", "cat", "twin", "note").out == "kept"
    sbx.ok("rm", name, "twin", "--yes")


@pytest.mark.parametrize("point", REMOVE_POINTS)
def test_a_killed_rm_can_be_said_again(sbx: Sbx, point: str) -> None:
    name = f"r{next(numbers)}"
    sbx.ok("create", name, "-m", "512")
    killed(sbx, point, "rm", name, "--yes")
    assert sbx("rm", name, "--yes").code in (0, 4)
    assert name not in {row["name"] for row in sbx.ok("ls", "--all", "--json").json}
    assert fleet(sbx) == {}


@pytest.mark.parametrize("point", RUN_POINTS)
def test_a_killed_run_is_ended_by_whoever_looks_next(sbx: Sbx, point: str) -> None:
    killed(sbx, point, "run", "-m", "512", "--", "true")
    # The runner may be at it already: then it is listed until the runner has ended it.
    looks = (fleet(sbx) for _ in range(40))
    assert any(seen == {} for seen in looks)


@pytest.mark.parametrize(("verb", "point"), [("stop", "suspend"), ("start", "resume")])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_killed_stop_or_start_loses_nothing(sbx: Sbx, verb: str, point: str, when: str) -> None:
    name = f"s{next(numbers)}"
    sbx.ok("create", name, "-m", "512")
    sbx.ok("exec", name, "--", "sh", "-c", "echo kept > note")
    if verb == "start":
        sbx.ok("stop", name)
    killed(sbx, f"{CONTROL}.{point}:{when}", verb, name)
    assert fleet(sbx)[name] in ("RUNNING", "SUSPENDED")
    sbx.ok("start", name)
    assert sbx.ok("fs", "cat", name, "note").out == "kept"
    sbx.ok("rm", name, "--yes")


def test_a_killed_rename_has_either_name(sbx: Sbx) -> None:
    sbx.ok("create", "old-name", "-m", "512")
    killed(sbx, f"{REGISTRY}.rename:after", "rename", "old-name", "new-name")
    assert fleet(sbx) == {"new-name": "RUNNING"}
    sbx.ok("rm", "new-name", "--yes")
