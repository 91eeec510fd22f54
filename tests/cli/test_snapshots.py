"""Forks and snapshots as a person makes them, and what is left of all of it at the end."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from sbxtui.localcloud import cgroups
from sbxtui.settings import load
from tests.support.sandboxes import point_to_runsc, processes_naming, require_runtime
from tests.support.sbx import Sbx

pytestmark = pytest.mark.long


@pytest.mark.parametrize("isolation", [pytest.param("gvisor", marks=pytest.mark.slow), "bubblewrap"])
def test_copies_are_made_listed_used_and_removed_and_nothing_is_left_of_them(fresh: Sbx, isolation: str) -> None:
    home = load(fresh.environment(), cwd=fresh.home).home
    images = home.trees_dir / ".images"
    images.mkdir(mode=0o711, parents=True, exist_ok=True)
    point_to_runsc(images)
    require_runtime(isolation, images)
    network = "allow=a.test:1"
    asked = ("--isolation", isolation, "--env", "GIVEN=kept", "--network", network)
    fresh.ok("create", "one", "-m", "512", *asked)
    fresh.ok("exec", "one", "--", "sh", "-c", "echo first > note; setsid sleep 1000 > /dev/null 2>&1 &")
    has_processes = isolation == "gvisor"
    made = fresh.ok("snapshot", "create", "one", "kept", "--json")
    assert (made.json["kind"], "files only" in made.err) == (("memory", False) if has_processes else ("files", True))
    assert fresh("snapshot", "create", "one", "kept").code == 5
    fresh.ok("exec", "one", "--", "sh", "-c", "echo second > note")
    fresh.ok("fork", "one", "twin")
    fresh.ok("snapshot", "restore", "kept", "back")
    [row] = fresh.ok("snapshot", "ls", "--json").json
    assert (row["name"], row["sandbox"], row["image"]) == ("kept", "one", "sbx-base-512")
    notes = [fresh.ok("fs", "cat", name, "note").out for name in ("one", "twin", "back")]
    assert notes == ["second", "second", "first"]
    script = "echo $GIVEN; hostname; cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -c '[s]leep 1000'"
    ran = fresh("exec", "twin", "--", "sh", "-c", script).out.split("\n")
    assert ran == (["kept", "twin", "1"] if has_processes else ["", "twin", "0"])
    rows = {one["name"]: one for one in fresh.ok("ls", "--json").json}
    assert (rows["twin"]["network"], rows["back"]["network"]) == (network, "none")
    assert {one["image"] for one in rows.values()} == {"sbx-base-512"}
    kinds = [json.loads(line)["kind"] for line in fresh.ok("events", "--json").out.splitlines()]
    assert {"sandbox.snapshot", "sandbox.fork"} <= set(kinds)
    assert fresh.ok("snapshot", "rm", "kept", "--yes").out == "kept"
    assert fresh("snapshot", "rm", "kept", "--yes").code == 4
    fresh.ok("rm", "--all", "--yes", "--wait")
    folders = [str(path.name) for path in home.trees_dir.glob("microvm-*/*")]
    assert set(folders) <= {"exit.json", "keeper.log", "network.jsonl"}
    fresh.ok("local", "reset", "--yes")
    assert processes_naming(str(home.trees_dir)) == []
    assert str(home.trees_dir) not in Path("/proc/self/mounts").read_text()
    assert cgroups.names_in(cgroups.folder_of(home.socket_dir)) == set() or os.geteuid() != 0
    assert not home.socket_dir.exists() or not list(home.socket_dir.iterdir())
    assert {path.name for path in home.trees_dir.rglob("*")} <= {".images", "runsc.json"}
