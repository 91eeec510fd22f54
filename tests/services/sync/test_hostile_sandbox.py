"""What a sandbox that means harm may list, and what this machine makes of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from sbxguest.tree import Entry, Kind, State
from sbxguest.tree.ignore import RuleTable
from sbxtui.services.sync.ignores import without_ignored
from sbxtui.services.sync.intake import Intake
from sbxtui.services.sync.model import Mode, Side
from sbxtui.services.sync.resolve import resolve
from sbxtui.services.sync.review import review, take_over
from tests.services.sync.pairs import TwoFolders, two_folders


async def in_conflict(two: TwoFolders, target: str) -> None:
    (two.here / "x").write_text("base")
    await two.cycle.compare()
    (two.here / "x").write_text("mine")
    (two.there / "x").unlink()
    (two.there / "x").symlink_to(target)
    await review(two.pair)


@pytest.mark.parametrize("target", ["/etc/passwd", "../../secret"])
async def test_deciding_for_the_sandbox_makes_no_link_that_leads_out(tmp_path: Path, target: str) -> None:
    with two_folders(tmp_path) as two, two.intake() as intake:
        await in_conflict(two, target)
        outcomes = await resolve(two.pair, intake, b"x", Side.GUEST)
        assert outcomes.failed == {b"x": "unsafe_link"}
        assert not outcomes.done
        assert (two.here / "x").read_text() == "mine"
        assert list(two.pair.conflicts) == [b"x"]


async def test_a_link_that_is_no_name_at_all_is_refused_in_words(tmp_path: Path) -> None:
    with two_folders(tmp_path) as two, two.intake() as intake:
        await in_conflict(two, "elsewhere")
        two.pair.there.put(b"x", State(Kind.LINK, b"a\0b"))
        two.pair.compare()
        outcomes = await resolve(two.pair, intake, b"x", Side.GUEST)
        assert outcomes.failed == {b"x": "unsafe_link"}
        assert (two.here / "x").read_text() == "mine"


@pytest.mark.parametrize("mode", [Mode.PUSH, Mode.TWO_WAY])
async def test_a_refused_link_does_not_cost_the_folder_it_would_replace(tmp_path: Path, mode: Mode) -> None:
    with two_folders(tmp_path, mode=mode) as two:
        (two.here / "d" / "e").mkdir(parents=True)
        (two.here / "d" / "e" / "f").write_text("precious")
        for number in range(10):
            (two.here / f"f{number}").write_text("x")
        await two.cycle.compare()
        (two.there / "d" / "e" / "f").unlink()
        (two.there / "d" / "e").rmdir()
        (two.there / "d").rmdir()
        (two.there / "d").symlink_to("/etc")
        if mode is Mode.TWO_WAY:
            await two.cycle.compare()
            assert set(two.cycle.status.failed.values()) == {"unsafe_link"}
        else:
            reviewed = await review(two.pair)
            assert not reviewed.changes
            assert reviewed.refused[b"d"] == "unsafe_link"
        assert (two.here / "d" / "e" / "f").read_text() == "precious"


async def test_deletions_that_come_one_by_one_are_counted_together_until_a_person_looks(tmp_path: Path) -> None:
    with two_folders(tmp_path, mode=Mode.TWO_WAY) as two:
        for number in range(20):
            (two.here / f"f{number}").write_text("x")
        await two.cycle.compare()
        for number in range(8):
            (two.there / f"tmp{number}").write_text("t")
            await two.cycle.compare()
            (two.there / f"tmp{number}").unlink()
            await two.cycle.compare()
        assert not two.cycle.status.halts
        for number in range(18):
            (two.there / f"f{number}").unlink()
            await two.cycle.follow((), {f"f{number}".encode()})
        assert two.cycle.status.halts == ("many_local_deletes",)
        assert len(list(two.here.iterdir())) == 5
        reviewed = await review(two.pair)
        assert [halt.code for halt in reviewed.halts] == ["many_local_deletes"]
        await take_over(two.pair, two.taking_in or Intake(two.pair.folder, tmp_path), reviewed, lambda size_bytes: None)
        await two.cycle.compare()
        assert not two.cycle.status.halts
        assert len(list(two.here.iterdir())) == 2


def test_what_looks_like_the_place_where_contents_wait_is_not_believed() -> None:
    names = (b"d", b".sbx-stage-0", b"d/.sbx-stage-0/trash", b"d/.sbx-put-0")
    listed = [Entry(name, State(Kind.DIR)) for name in names]
    assert [record.path for record in without_ignored(RuleTable({}), listed)] == [b"d"]
