"""Taking back: no byte that somebody wrote is lost, and what was taken back stays so."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sbxtui.core.errors import GuestUnreachable
from sbxtui.services.sync.model import Mode, Side
from sbxtui.services.sync.pair import Outcomes
from sbxtui.services.sync.resolve import resolve
from sbxtui.services.sync.review import review, take_over
from sbxtui.services.sync.undo import undo
from tests.services.sync.pairs import TwoFolders, two_folders


async def pulled(two: TwoFolders) -> Outcomes:
    with two.intake() as intake:
        return await take_over(two.pair, intake, await review(two.pair), lambda size_bytes: None)


async def taken_back(two: TwoFolders, word: str) -> Outcomes:
    batch = next(one for one in two.pair.ancestors.batches() if one.word == word)
    with two.intake() as intake:
        return await undo(two.pair, intake, batch)


def some_files(two: TwoFolders) -> None:
    for number in range(10):
        (two.here / f"f{number}").write_text("x")


async def test_a_file_that_became_a_folder_and_back_again_is_taken_back_whole(tmp_path: Path) -> None:
    with two_folders(tmp_path) as two:
        some_files(two)
        (two.here / "file").write_text("precious")
        (two.here / "folder" / "in").mkdir(parents=True)
        (two.here / "folder" / "in" / "a").write_text("dear")
        await two.cycle.compare()
        (two.there / "file").unlink()
        (two.there / "file").mkdir()
        (two.there / "file" / "new").write_text("n")
        (two.there / "folder" / "in" / "a").unlink()
        (two.there / "folder" / "in").rmdir()
        (two.there / "folder").rmdir()
        (two.there / "folder").write_text("n")
        await pulled(two)
        assert two.both("file/new") == ("n", "n") and two.both("folder") == ("n", "n")
        outcomes = await taken_back(two, "pull")
        assert not outcomes.failed
        assert two.both("file")[0] == "precious" and two.both("folder/in/a")[0] == "dear"
        assert two.pair.ancestors.batches() == []
        await two.cycle.compare()
        assert two.both("file") == ("precious", None) and two.both("file/new") == (None, "n")


async def test_what_cannot_be_taken_back_can_be_tried_again(tmp_path: Path) -> None:
    with two_folders(tmp_path) as two:
        some_files(two)
        await two.cycle.compare()
        for number in range(3):
            (two.there / f"f{number}").write_text("agent")
        await pulled(two)
        (two.here / "f1").write_text("since then")
        outcomes = await taken_back(two, "pull")
        assert set(outcomes.done) == {b"f0", b"f2"} and set(outcomes.failed) == {b"f1"}
        assert two.both("f1")[0] == "since then"
        (batch,) = two.pair.ancestors.batches()
        assert [one.path for one in batch.steps] == [b"f1"] and batch.is_left_over
        (two.here / "f1").write_text("agent")
        assert (await taken_back(two, "pull")).done == [b"f1"]
        assert [two.both(f"f{number}") for number in range(3)] == [("x", "agent")] * 3


async def test_all_of_a_large_pull_is_taken_back(tmp_path: Path) -> None:
    with two_folders(tmp_path) as two:
        for number in range(3):
            (two.here / f"f{number}").write_text("old")
        await two.cycle.compare()
        for number in range(3):
            (two.there / f"f{number}").write_bytes(os.urandom(9 << 20))
        await pulled(two)
        assert len(two.pair.ancestors.batches()) == 1
        outcomes = await taken_back(two, "pull")
        assert sorted(outcomes.done) == [b"f0", b"f1", b"f2"]
        assert [(two.here / f"f{number}").read_text() for number in range(3)] == ["old"] * 3


async def test_taking_back_in_a_two_way_sync_goes_to_the_sandbox_and_stays(tmp_path: Path) -> None:
    with two_folders(tmp_path, mode=Mode.TWO_WAY) as two:
        (two.here / "x").write_text("one")
        await two.cycle.compare()
        (two.there / "x").write_text("agent")
        (two.there / "new").write_text("agent")
        await two.cycle.compare()
        await taken_back(two, "pull")
        for _ in range(2):
            await two.cycle.compare()
            assert two.both("x") == ("one", "one") and two.both("new") == (None, None)


@pytest.mark.parametrize("mode", [Mode.PUSH, Mode.TWO_WAY])
async def test_what_was_carried_over_and_taken_back_overwrites_nothing_here(tmp_path: Path, mode: Mode) -> None:
    with two_folders(tmp_path, mode=mode) as two:
        for name in ("edited", "deleted", "program"):
            (two.here / name).write_text("one")
        await two.cycle.compare()
        (two.here / "edited").write_text("my edit")
        (two.here / "deleted").unlink()
        (two.here / "program").chmod(0o755)
        await two.cycle.compare()
        assert not (await taken_back(two, "push")).failed
        for _ in range(2):
            await two.cycle.compare()
            assert two.both("edited") == ("my edit", "one")
            assert list(two.pair.conflicts) == [b"edited"]
            assert two.both("deleted")[1] == "one"
            assert not (two.there / "program").stat().st_mode & 0o111


@pytest.mark.parametrize("mode", [Mode.PUSH, Mode.TWO_WAY])
@pytest.mark.parametrize("winner", [Side.LOCAL, Side.GUEST])
async def test_a_decision_that_is_taken_back_is_a_conflict_again(tmp_path: Path, mode: Mode, winner: Side) -> None:
    with two_folders(tmp_path, mode=mode) as two:
        (two.here / "x").write_text("one")
        await two.cycle.compare()
        (two.here / "x").write_text("mine")
        (two.there / "x").write_text("agent")
        with two.intake() as intake:
            await review(two.pair)
            await resolve(two.pair, intake, b"x", winner)
        assert two.both("x") in (("mine", "mine"), ("agent", "agent"))
        assert not (await taken_back(two, "resolve")).failed
        for _ in range(2):
            await two.cycle.compare()
            assert two.both("x") == ("mine", "agent")
            assert list(two.pair.conflicts) == [b"x"]
        assert not (await review(two.pair)).changes


async def test_a_sandbox_that_is_gone_while_something_is_taken_back_leaves_nothing_to_be_overwritten(
    tmp_path: Path,
) -> None:
    is_cut = False

    def fault(point: str) -> None:
        if is_cut:
            raise GuestUnreachable(f"cut while {point}")

    with two_folders(tmp_path, fault=fault) as two:
        (two.here / "x").write_text("one")
        await two.cycle.compare()
        (two.here / "x").write_text("two")
        await two.cycle.compare()
        is_cut = True
        with pytest.raises(GuestUnreachable):
            await taken_back(two, "push")
        is_cut = False
        assert [one.path for one in two.pair.ancestors.batches()[0].steps] == [b"x"]
        await two.cycle.compare()
        assert two.both("x") == ("two", "two") and not two.pair.conflicts
        assert (await taken_back(two, "push")).done == [b"x"]


async def test_what_was_never_tried_is_not_left_over_and_what_was_taken_back_in_the_end_is_forgotten(
    tmp_path: Path,
) -> None:
    with two_folders(tmp_path) as two:
        some_files(two)
        await two.cycle.compare()
        for name in ("f0", "f1"):
            (two.there / name).write_text("agent")
        await pulled(two)
        (two.here / "f1").write_text("since then")
        await taken_back(two, "pull")
        (two.there / "f2").write_text("agent")
        await pulled(two)
        assert [one.is_left_over for one in two.pair.ancestors.batches()] == [False, True]
        (two.here / "f1").write_text("agent")
        left = two.pair.ancestors.batches()[1]
        with two.intake() as intake:
            await undo(two.pair, intake, left)
        assert [[step.path for step in one.steps] for one in two.pair.ancestors.batches()] == [[b"f0", b"f2"]]


async def test_a_content_whose_size_was_only_known_here_is_taken_back_in_the_sandbox(tmp_path: Path) -> None:
    with two_folders(tmp_path) as two:
        some_files(two)
        await two.cycle.compare()
        (two.there / "f0").write_text("agent")
        await pulled(two)
        await taken_back(two, "pull")
        (two.there / "f0").write_text("x")
        (two.here / "f0").write_text("mine")
    with two_folders(tmp_path) as two:
        await two.cycle.follow({b""})
        assert two.both("f0") == ("mine", "mine")
        assert not (await taken_back(two, "push")).failed
        assert two.both("f0") == ("mine", "x")


async def test_more_than_a_batch_holds_is_taken_back_in_the_sandbox(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sbxtui.services.sync.undo.BATCH_OPS", 3)
    with two_folders(tmp_path) as two:
        some_files(two)
        await two.cycle.compare()
        for number in range(10):
            (two.here / f"f{number}").write_text("mine")
        await two.cycle.compare()
        outcomes = await taken_back(two, "push")
        assert len(outcomes.done) == 10 and not outcomes.failed
        assert two.both("f9") == ("mine", "x")
