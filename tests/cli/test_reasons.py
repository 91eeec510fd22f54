"""Why a sandbox ended, and what was killed in it, is told everywhere."""

from __future__ import annotations

import os
import signal

import pytest

from tests.support.guest_process import children_of
from tests.support.sandboxes import processes_naming
from tests.support.sbx import Sbx

pytestmark = pytest.mark.long

HOG = "b = [bytearray(1 << 20) for _ in range(2000)]"


def test_a_command_killed_for_its_memory_is_told_by_every_verb_and_once_by_events(sbx: Sbx) -> None:
    sbx.ok("create", "small", "-m", "512")
    ran = sbx("exec", "small", "--", "python3", "-c", HOG)
    assert ran.code == 128 + signal.SIGKILL
    assert "note: killed for memory" in ran.err
    for _ in range(2):
        [listed] = [row for row in sbx.ok("ls", "--json").json if row["name"] == "small"]
    assert (listed["state"], "killed for memory" in listed["state_reason"]) == ("RUNNING", True)
    assert "running (killed for memory" in sbx.ok("ls").out
    assert "killed for memory" in sbx.ok("inspect", "small").json["record"]["state_reason"]
    events = sbx.ok("events", "small").out.splitlines()
    assert len([line for line in events if "sandbox.killed" in line and "limit=memory" in line]) == 1
    sbx.ok("rm", "small", "--yes", "--wait")


def test_a_sandbox_that_ended_by_itself_says_how_and_is_asked_once(sbx: Sbx) -> None:
    sandbox_id = sbx.ok("create", "short", "-m", "512", "--json").json["id"]
    [keeper] = processes_naming(sandbox_id)
    [root] = children_of(keeper)
    os.kill(root, signal.SIGKILL)
    sbx.ok("wait", "short", "--for", "terminated")
    for _ in range(2):
        [listed] = [row for row in sbx.ok("ls", "--all", "--json").json if row["name"] == "short"]
    assert listed["state_reason"] == "Container Stopped with Exit Code: 137"
    assert "terminated (Container Stopped" in sbx.ok("ls", "--all").out
    events = sbx.ok("events", "short").out.splitlines()
    assert len([line for line in events if "sandbox.ended" in line and "Exit Code: 137" in line]) == 1
    sbx.ok("prune", "--yes")
