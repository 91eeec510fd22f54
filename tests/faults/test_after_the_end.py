"""What is left of sandboxes that ended: taken at once by `prune`, and no empty control groups stay behind."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from pathlib import Path

import pytest

from sbxtui.localcloud import cgroups
from sbxtui.settings import locate_home
from tests.support.sandboxes import processes_naming
from tests.support.sbx import Sbx

pytestmark = pytest.mark.long


def trees(sbx: Sbx) -> set[str]:
    """Folders of sandboxes that this home has, of living and ended ones."""
    folder = locate_home(sbx.environment()).trees_dir
    return {entry.name for entry in folder.iterdir() if entry.name.startswith("microvm-")}


def group_folders(sbx: Sbx) -> list[Path]:
    """The home's folders of control groups, and the groups in them."""
    found = cgroups.find_hierarchies()
    folder = cgroups.folder_of(locate_home(sbx.environment()).socket_dir)
    places = [mount / folder for mount in (*found.v1.values(), *([found.unified] if found.unified else []))]
    return [path for place in places if place.exists() for path in (place, *place.glob("*/"))]


def test_prune_takes_names_records_and_folders_of_the_ended_and_leaves_the_living(sbx: Sbx, app: str) -> None:
    living = sbx.ok("inspect", app).json["id"]
    old = sbx.ok("create", "old", "-m", "512", "--json").json["id"]
    sbx.ok("rm", "old", "--yes", "--wait")
    gone = sbx.ok("create", "gone", "-m", "512", "--json").json["id"]
    [keeper] = processes_naming(gone)
    os.kill(keeper, signal.SIGTERM)
    sbx.ok("wait", "gone", "--for", "terminated")
    assert sbx.ok("prune", "--dry-run").out == "gone"
    assert {living, old, gone} <= trees(sbx)
    refused = sbx("prune")
    assert (refused.code, "forget 1 name and " in refused.err, "add --yes" in refused.err) == (2, True, True)
    pruned = sbx.ok("prune", "--yes")
    assert pruned.out == "gone"
    assert re.search(r"the local cloud forgot \d+ ended sandboxes", pruned.err)
    assert trees(sbx) == {living}
    records = locate_home(sbx.environment()).local_dir / "sandboxes"
    assert [file.stem for file in records.glob("*.json")] == [living]
    assert sbx.ok("exec", app, "--", "echo", "alive").out == "alive"
    # What has no name here any more is asked for, too.
    sbx.ok("create", "old", "-m", "512")
    sbx.ok("rm", "old", "--yes", "--wait")
    refused = sbx("prune")
    assert (refused.code, "forget 1 ended sandbox needs" in refused.err) == (2, True)
    sbx.ok("prune", "--yes")
    assert "nothing to prune" in sbx.ok("prune").err


def test_a_killed_keeper_leaves_neither_files_nor_groups_while_the_cloud_goes_on(sbx: Sbx, app: str) -> None:
    sandbox_id = sbx.ok("create", "lost", "-m", "512", "--json").json["id"]
    sbx.ok("exec", "lost", "--", "sh", "-c", "echo kept > /work/file")
    [keeper] = processes_naming(sandbox_id)
    os.kill(keeper, signal.SIGKILL)
    sbx.ok("wait", "lost", "--for", "terminated")
    folder = locate_home(sbx.environment()).trees_dir / sandbox_id
    assert not (folder / "work").exists()
    assert not any(path.name == sandbox_id for path in group_folders(sbx))
    assert "keeper was killed and left no record" in sbx.ok("inspect", "lost").json["record"]["state_reason"]
    sbx.ok("prune", "--yes")


@pytest.mark.root
def test_the_last_sandbox_and_a_reset_leave_no_control_groups(fresh: Sbx) -> None:
    fresh.ok("create", "one", "-m", "512")
    if not group_folders(fresh):
        pytest.skip("this system lets root make no control group")
    fresh.ok("rm", "one", "--yes", "--wait")
    assert group_folders(fresh) == []
    fresh.ok("create", "two", "-m", "512")
    for path in group_folders(fresh)[:1]:
        (path / "left-behind").mkdir()
    assert "reset: 1 sandbox ended, 1 name forgotten" in fresh.ok("local", "reset", "--yes").err
    assert group_folders(fresh) == []


@pytest.mark.slow
def test_removing_what_does_not_end_yet_says_so_and_waits_if_asked(sbx: Sbx, app: str) -> None:
    for name in ("hung", "awaited"):
        sandbox_id = sbx.ok("create", name, "-m", "512", "--json").json["id"]
        [keeper] = processes_naming(sandbox_id)
        os.kill(keeper, signal.SIGSTOP)
        try:
            if name == "hung":
                removed = sbx.ok("rm", name, "--yes")
                assert "hung: ending" in removed.err
                continue
            with sbx.spawn("rm", name, "--yes", "--wait") as waiting:
                while states(sbx)[sandbox_id] != "TERMINATING":
                    assert waiting.poll() is None
                os.kill(keeper, signal.SIGCONT)
                assert waiting.wait(60) == 0
                assert waiting.stderr is not None
                assert b"awaited: removed" in waiting.stderr.read()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(keeper, signal.SIGCONT)


def states(sbx: Sbx) -> dict[str, str]:
    """Of every sandbox, by id."""
    return {row["id"]: row["state"] for row in sbx.ok("ls", "--all", "--json").json}
