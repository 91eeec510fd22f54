"""Conflicts decided for both sides, and texts merged: every version stays to be had."""

from __future__ import annotations

import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from sbxtui.core.errors import Conflict, Unsupported
from sbxtui.services.sync.intake import Intake
from sbxtui.services.sync.model import Mode, OnConflict, Side
from sbxtui.services.sync.pair import Outcomes, Pair
from sbxtui.services.sync.resolve import keep_both, merge, resolve
from sbxtui.services.sync.review import review
from sbxtui.services.sync.undo import undo
from tests.services.sync.pairs import TwoFolders, two_folders

BASE = "".join(f"line {number}\n" for number in range(20))
MINE, THEIRS = BASE.replace("line 2\n", "mine\n"), BASE.replace("line 17\n", "theirs\n")
BOTH = MINE.replace("line 17\n", "theirs\n")


async def decided(two: TwoFolders, how: Callable[[Pair, Intake, bytes], Awaitable[Outcomes]], path: bytes) -> Outcomes:
    with two.intake() as intake:
        await review(two.pair)
        return await how(two.pair, intake, path)


async def taken_back(two: TwoFolders) -> Outcomes:
    (batch,) = [one for one in two.pair.ancestors.batches() if one.word == "resolve"]
    with two.intake() as intake:
        return await undo(two.pair, intake, batch)


async def in_conflict(two: TwoFolders, name: str = "a.txt", *, mine: str = MINE, theirs: str = THEIRS) -> None:
    (two.here / name).write_text(BASE)
    await two.cycle.compare()
    (two.here / name).write_text(mine)
    (two.there / name).write_text(theirs)


def committed(two: TwoFolders, name: str = "a.txt") -> None:
    """The folder is a repository that has the first version."""
    for words in (["init", "-q"], ["add", name], ["-c", "user.name=n", "-c", "user.email=e", "commit", "-qm", "m"]):
        subprocess.run(["git", "-C", two.here, *words], check=True, timeout=60)


async def test_both_versions_stay_on_both_sides_under_two_names(tmp_path: Path) -> None:
    with two_folders(tmp_path) as two:
        await in_conflict(two)
        (two.there / "a.sandbox.txt").write_text("another")
        outcomes = await decided(two, keep_both, b"a.txt")
        assert not (outcomes.failed or outcomes.moved_on or two.pair.conflicts)
        assert two.both("a.txt") == (MINE, MINE)
        assert two.both("a.sandbox-2.txt") == (THEIRS, THEIRS)
        await two.cycle.compare()
        assert not two.pair.conflicts and two.both("a.sandbox.txt") == (None, "another")
        assert not (await taken_back(two)).failed
        assert two.both("a.txt") == (MINE, THEIRS)
        assert two.both("a.sandbox-2.txt") == (None, THEIRS)


async def test_what_another_process_decided_is_in_conflict_no_more_for_who_goes_on(tmp_path: Path) -> None:
    with two_folders(tmp_path) as two:
        for name in ("a.txt", "b.txt"):
            await in_conflict(two, name)
        await two.cycle.compare()
        assert two.pair.conflicts.keys() == {b"a.txt", b"b.txt"}
        with two_folders(tmp_path) as other, other.intake() as intake:
            await review(other.pair)
            await resolve(other.pair, intake, b"a.txt", Side.LOCAL)
        assert two.pair.is_outdated
        (two.here / "c.txt").write_text("saved")
        await two.cycle.follow([b"c.txt"])
        assert two.pair.conflicts.keys() == {b"b.txt"}
        assert [one.path for one in two.pair.ancestors.disputes()] == [b"b.txt"]
        assert two.both("a.txt") == (MINE, MINE)


@pytest.mark.parametrize(
    ("name", "copy"), [("Makefile", "Makefile.sandbox"), (".env", ".env.sandbox"), ("x" * 255, "x" * 247 + ".sandbox")]
)
async def test_the_copy_has_a_name_that_fits(tmp_path: Path, name: str, copy: str) -> None:
    with two_folders(tmp_path) as two:
        await in_conflict(two, name)
        await decided(two, keep_both, name.encode())
        assert two.both(copy) == (THEIRS, THEIRS)


async def test_a_version_that_changed_meanwhile_is_not_copied(tmp_path: Path) -> None:
    with two_folders(tmp_path) as two:
        await in_conflict(two)
        with two.intake() as intake:
            await review(two.pair)
            (two.there / "a.txt").write_text("later")
            outcomes = await keep_both(two.pair, intake, b"a.txt")
        assert outcomes.moved_on == {b"a.txt"}
        assert two.both("a.txt") == (MINE, "later") and two.both("a.sandbox.txt") == (None, None)


async def test_a_folder_of_the_sandbox_is_not_kept_beside_a_file(tmp_path: Path) -> None:
    with two_folders(tmp_path) as two:
        (two.here / "a").write_text("file")
        (two.there / "a").mkdir(parents=True)
        with pytest.raises(Unsupported, match="no file"):
            await decided(two, keep_both, b"a")


async def test_changes_of_different_lines_are_merged_and_taken_back_together(tmp_path: Path) -> None:
    with two_folders(tmp_path) as two:
        await in_conflict(two)
        (two.here / "a.txt").write_text(BASE)
        committed(two)
        (two.here / "a.txt").write_text(MINE)
        (two.here / "a.txt").chmod(0o755)
        outcomes = await decided(two, merge, b"a.txt")
        assert not (outcomes.failed or outcomes.moved_on or two.pair.conflicts)
        assert two.both("a.txt") == (BOTH, BOTH)
        assert (two.here / "a.txt").stat().st_mode & (two.there / "a.txt").stat().st_mode & 0o111
        assert not (await taken_back(two)).failed
        assert two.both("a.txt") == (MINE, THEIRS)
        await two.cycle.compare()
        assert list(two.pair.conflicts) == [b"a.txt"]


async def test_changes_of_the_same_line_are_not_merged(tmp_path: Path) -> None:
    with two_folders(tmp_path) as two:
        await in_conflict(two, theirs=BASE.replace("line 2\n", "theirs\n"))
        (two.here / "a.txt").write_text(BASE)
        committed(two)
        (two.here / "a.txt").write_text(MINE)
        with pytest.raises(Conflict, match="in 1 place"):
            await decided(two, merge, b"a.txt")
        assert two.both("a.txt") == (MINE, BASE.replace("line 2\n", "theirs\n"))


async def test_without_the_version_both_began_with_nothing_is_merged(tmp_path: Path) -> None:
    with two_folders(tmp_path) as two:
        await in_conflict(two)
        with pytest.raises(Unsupported, match="began with"):
            await decided(two, merge, b"a.txt")
        (two.here / "a.txt").write_bytes(b"\0")
        with pytest.raises(Unsupported, match="no text"):
            await decided(two, merge, b"a.txt")


async def test_without_git_nothing_is_merged_and_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with two_folders(tmp_path) as two:
        await in_conflict(two)
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(Unsupported, match="no git"):
            await decided(two, merge, b"a.txt")


@pytest.mark.parametrize(
    ("mode", "policy", "mine", "theirs"),
    [
        (Mode.PUSH, OnConflict.LOCAL, MINE, MINE),
        (Mode.TWO_WAY, OnConflict.GUEST, THEIRS, THEIRS),
        (Mode.TWO_WAY, OnConflict.STOP, MINE, THEIRS),
        (Mode.TWO_WAY, OnConflict.MERGE, BOTH, BOTH),
    ],
)
async def test_conflicts_are_decided_as_was_said_beforehand(
    tmp_path: Path, mode: Mode, policy: OnConflict, mine: str, theirs: str
) -> None:
    with two_folders(tmp_path, mode=mode, on_conflict=policy) as two:
        await in_conflict(two)
        await two.cycle.compare()
        assert two.both("a.txt") == (mine, theirs)
        assert two.cycle.status.decided == (policy is not OnConflict.STOP)
        assert two.cycle.status.conflicts == ((b"a.txt",) if policy is OnConflict.STOP else ())


async def test_what_cannot_be_merged_stays_in_conflict_and_is_not_tried_again_and_again(tmp_path: Path) -> None:
    with two_folders(tmp_path, mode=Mode.TWO_WAY, on_conflict=OnConflict.MERGE) as two:
        theirs = BASE.replace("line 2\n", "theirs\n")
        await in_conflict(two, theirs=theirs)
        for _ in range(2):
            await two.cycle.compare()
            assert two.both("a.txt") == (MINE, theirs)
            assert (two.cycle.status.decided, two.cycle.status.conflicts) == (0, (b"a.txt",))
