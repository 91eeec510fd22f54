"""A turn of a link: what is carried over, what is left, what halts."""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path

import pytest

from sbxtui.core.errors import GuestUnreachable, Incomplete
from sbxtui.services.sync.arrival import check_arrived
from sbxtui.services.sync.model import Mode
from sbxtui.services.sync.pair import ACCEPT_DELETES
from sbxtui.services.sync.status import LinkState
from tests.services.sync.pairs import TwoFolders, two_folders


def halts(two: TwoFolders) -> tuple[str, ...]:
    return two.cycle.status.halts


async def test_a_first_comparison_makes_the_sandbox_as_this_machine_is(tmp_path: Path) -> None:
    with two_folders(tmp_path) as two:
        (two.here / "d" / "empty").mkdir(parents=True)
        (two.here / "d" / "f").write_bytes(b"\xef\xbb\xbfa\r\n\0b")
        (two.here / "run").write_text("#!/bin/sh\n")
        (two.here / "run").chmod(0o755)
        (two.here / "link").symlink_to("d/f")
        (two.here / "none").touch()
        (two.here / "big").write_bytes(bytes(5 * 1024 * 1024))
        await two.cycle.compare()
        assert (two.there / "d" / "f").read_bytes() == b"\xef\xbb\xbfa\r\n\0b"
        assert (two.there / "d" / "empty").is_dir()
        assert (two.there / "run").stat().st_mode & 0o777 == 0o755
        assert (two.there / "link").readlink() == Path("d/f")
        assert (two.there / "none").read_bytes() == b""
        assert (two.there / "big").stat().st_size == 5 * 1024 * 1024
        assert two.cycle.status.pushed == 7


async def test_what_only_the_sandbox_has_stays_and_is_counted(tmp_path: Path) -> None:
    with two_folders(tmp_path) as two:
        (two.here / "mine").write_text("1")
        (two.there / "theirs").write_text("2")
        await two.cycle.compare()
        assert two.both("theirs") == (None, "2")
        assert two.both("mine") == ("1", "1")
        assert two.cycle.status.guest_changes == 1


async def test_only_what_a_hint_points_at_is_carried_over_and_nothing_is_asked_for_no_change(tmp_path: Path) -> None:
    with two_folders(tmp_path) as two:
        (two.here / "a").write_text("1")
        await two.cycle.compare()
        asked: list[str] = []
        two.guest.fault = asked.append
        (two.here / "a").write_text("22")
        (two.here / "b").write_text("3")
        assert await two.cycle.follow({b"a"}) == 1
        assert two.both("a") == ("22", "22")
        assert two.both("b") == ("3", None)
        asked.clear()
        (two.here / "a").touch()
        assert await two.cycle.follow({b"a"}) == 0
        assert asked == []
        await two.cycle.follow({b""})
        assert two.both("b") == ("3", "3")


async def test_deletions_renames_modes_and_empty_folders_are_mirrored(tmp_path: Path) -> None:
    with two_folders(tmp_path) as two:
        (two.here / "d" / "e").mkdir(parents=True)
        (two.here / "d" / "f").write_text("content")
        (two.here / "s").write_text("x")
        await two.cycle.compare()
        two.guest.sent.clear()
        (two.here / "d").rename(two.here / "n")
        (two.here / "s").chmod(0o755)
        await two.cycle.follow({b"d", b"n", b"s"})
        assert not (two.there / "d").exists()
        assert (two.there / "n" / "e").is_dir()
        assert two.both("n/f") == ("content", "content")
        assert (two.there / "s").stat().st_mode & 0o100
        assert two.guest.sent == []


async def test_an_edit_on_both_sides_is_a_conflict_that_changes_neither_and_stops_nothing(tmp_path: Path) -> None:
    with two_folders(tmp_path) as two:
        (two.here / "p").write_text("base")
        await two.cycle.compare()
        (two.here / "p").write_text("mine")
        (two.here / "q").write_text("other")
        (two.there / "p").write_text("theirs")
        await two.cycle.follow({b"p", b"q"})
        assert two.both("p") == ("mine", "theirs")
        assert two.both("q") == ("other", "other")
        assert two.cycle.status.conflicts == (b"p",)
        (dispute,) = two.pair.ancestors.disputes()
        assert dispute.path == b"p"


async def test_a_deletion_here_never_takes_an_edit_there_with_it(tmp_path: Path) -> None:
    with two_folders(tmp_path) as two:
        (two.here / "d").mkdir()
        for name in ("old", "edited"):
            (two.here / "d" / name).write_text("base")
        await two.cycle.compare()
        (two.there / "d" / "edited").write_text("theirs")
        (two.there / "d" / "new").write_text("new")
        (two.here / "keep").touch()
        shutil.rmtree(two.here / "d")
        await two.cycle.follow({b"d", b"keep"})
        assert (two.there / "d" / "edited").read_text() == "theirs"
        assert (two.there / "d" / "new").read_text() == "new"
        assert not (two.there / "d" / "old").exists()


async def test_a_cut_at_any_point_is_healed_by_comparing_again(tmp_path: Path) -> None:
    points = 0
    while True:
        seen = 0

        def cut(point: str, at: int = points) -> None:
            nonlocal seen
            seen += 1
            if seen == at + 1:
                raise GuestUnreachable(point)

        folder = tmp_path / str(points)
        with two_folders(folder, fault=cut) as two:
            for number in range(4):
                (two.here / f"d{number}").mkdir()
                (two.here / f"d{number}" / "f").write_text(str(number))
            is_cut = False
            try:
                await two.cycle.compare()
            except GuestUnreachable:
                is_cut = True
                two.guest.fault = lambda point: None
                await two.cycle.compare()
            # Also where all of it was there before the cut.
            assert two.cycle.status.pending == 0
            for number in range(4):
                assert two.both(f"d{number}/f") == (str(number), str(number))
        if not is_cut:
            break
        points += 1
    assert points > 5


async def test_a_state_that_was_lost_deletes_nothing_and_what_differs_is_a_conflict(tmp_path: Path) -> None:
    with two_folders(tmp_path) as two:
        for name in ("same", "differs", "gone-here", "gone-there"):
            (two.here / name).write_text("base")
        await two.cycle.compare()
    shutil.rmtree(tmp_path / "state")
    (tmp_path / "h" / "here" / "gone-here").unlink()
    (tmp_path / "t" / "there" / "gone-there").unlink()
    (tmp_path / "t" / "there" / "differs").write_text("theirs")
    with two_folders(tmp_path) as two:
        await two.cycle.compare()
        assert two.both("same") == ("base", "base")
        assert two.both("gone-here") == (None, "base")
        assert two.both("gone-there") == ("base", "base")
        assert two.both("differs") == ("base", "theirs")
        assert two.cycle.status.conflicts == (b"differs",)


@pytest.mark.parametrize("is_live", [True, False], ids=["live", "later"])
@pytest.mark.parametrize("side", ["here", "there"])
@pytest.mark.parametrize("what", ["removed", "emptied", "replaced", "a file"])
async def test_a_root_that_was_lost_halts_and_deletes_nothing(
    tmp_path: Path, side: str, what: str, is_live: bool
) -> None:
    with two_folders(tmp_path) as two:
        for number in range(9):
            (two.here / f"f{number}").write_text("x")
        await two.cycle.compare()
        if is_live:
            lose(tmp_path / side[0] / side, what)
            await two.cycle.compare()
            assert two.cycle.status.state is LinkState.HALTED
    if not is_live:
        lose(tmp_path / side[0] / side, what)
        if what in ("removed", "a file"):
            return
        with two_folders(tmp_path) as two:
            await two.cycle.compare()
            assert two.cycle.status.state is LinkState.HALTED
    other = tmp_path / ("t/there" if side == "here" else "h/here")
    assert len(list(other.iterdir())) == 9


def lose(root: Path, what: str) -> None:
    kept = root.with_name("kept")
    root.rename(kept)
    if what == "a file":
        root.write_text("")
    elif what == "replaced":
        root.mkdir()
        (root / "other").write_text("y")
    elif what == "emptied":
        kept.rename(root)
        for path in root.iterdir():
            path.unlink()


async def test_another_sandbox_of_the_same_name_halts_and_going_on_deletes_nothing(tmp_path: Path) -> None:
    with two_folders(tmp_path) as two:
        for number in range(9):
            (two.here / f"f{number}").write_text("x")
        await two.cycle.compare()
        two.guest.guest_id = "guest-2"
        shutil.rmtree(two.there)
        two.there.mkdir()
        (two.there / "of-the-image").write_text("y")
        await two.cycle.compare()
        assert "guest_root_replaced" in halts(two)
        await two.pair.start_anew()
        await two.cycle.compare()
        assert two.both("f3") == ("x", "x")
        assert two.both("of-the-image") == (None, "y")


async def test_ignored_files_are_not_sent_not_deleted_and_follow_the_rules_as_they_change(tmp_path: Path) -> None:
    with two_folders(tmp_path) as two:
        (two.here / ".gitignore").write_text("*.log\n")
        (two.here / "a.log").write_text("x")
        (two.here / "b.txt").write_text("x")
        (two.here / "node_modules").mkdir()
        (two.here / "node_modules" / "m").write_text("x")
        (two.there / "a.log").write_text("theirs")
        await two.cycle.compare()
        assert two.both("a.log") == ("x", "theirs")
        assert not (two.there / "node_modules").exists()
        (two.here / ".gitignore").write_text("*.txt\n")
        (two.here / "c.log").write_text("now")
        await two.cycle.follow({b".gitignore", b"c.log"})
        assert two.both("c.log") == ("now", "now")
        assert two.both("b.txt") == ("x", "x")
        (two.here / "b.txt").unlink()
        await two.cycle.follow({b"b.txt"})
        assert two.both("b.txt") == (None, "x")


async def test_git_itself_is_synced_from_neither_side(tmp_path: Path) -> None:
    with two_folders(tmp_path) as two:
        for root in (two.here, two.there):
            (root / ".git").mkdir()
            (root / ".git" / "HEAD").write_text(root.name)
        (two.here / "f").touch()
        await two.cycle.compare()
        assert two.both(".git/HEAD") == ("here", "there")
        assert two.cycle.status.guest_changes == 0


async def test_names_of_any_bytes_and_odd_links_are_carried_over_exactly(tmp_path: Path) -> None:
    names = ["`x`", "$(x)", "a'b\"c", "a  b", "a\nb", "\U0001f600", "\xe9", "e\u0301", "-rf", os.fsdecode(b"\xff\xfe")]
    with two_folders(tmp_path) as two:
        for name in names:
            (two.here / name).write_text("x")
        for name, target in (("dangling", "nowhere"), ("absolute", "/etc/hostname"), ("up", ".."), ("loop", "loop")):
            (two.here / name).symlink_to(target)
        await two.cycle.compare()
        assert sorted(path.name for path in two.there.iterdir()) == sorted(path.name for path in two.here.iterdir())
        for name in names:
            (two.here / name).unlink()
        await two.cycle.follow({b""})
        assert sorted(path.name for path in two.there.iterdir()) == ["absolute", "dangling", "loop", "up"]


async def test_mirror_removes_what_only_the_sandbox_has_but_not_at_first_sight(tmp_path: Path) -> None:
    with two_folders(tmp_path, mode=Mode.MIRROR) as two:
        (two.here / "mine").write_text("1")
        (two.there / "theirs").write_text("2")
        await two.cycle.compare()
        assert halts(two) == ("first_contact_deletes",)
        assert two.both("theirs") == (None, "2")
        two.pair.ancestors.set_meta({ACCEPT_DELETES: "1"})
        await two.cycle.compare()
        assert not halts(two)
        assert two.both("mine") == ("1", "1") and two.both("theirs") == (None, None)
        await two.pair.start_anew()
        (two.there / "theirs").write_text("3")
        await two.cycle.compare()
        assert halts(two) == ("first_contact_deletes",), "the consent was for the first comparison only"


async def test_a_turn_after_which_a_file_is_not_in_the_sandbox_is_not_called_complete(tmp_path: Path) -> None:
    with two_folders(tmp_path) as two:
        (two.here / "x").write_text("one")
        await two.cycle.compare()
        check_arrived("box", two.cycle)
        (two.here / "x").write_text("mine")
        (two.there / "x").write_text("theirs")
        (two.here / "d").mkdir()
        (two.there / "d").write_text("")
        await two.cycle.follow({b""})
        with pytest.raises(Incomplete) as caught:
            check_arrived("box", two.cycle)
        assert caught.value.details["failed"] == [{"path": path, "code": "conflict"} for path in ("d", "x")]


async def test_what_is_no_file_folder_or_link_is_named_once_and_never_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with two_folders(tmp_path) as two:
        os.mkfifo(two.here / "pipe")
        with socket.socket(socket.AF_UNIX) as listening:
            # Paths of sockets are short.
            monkeypatch.chdir(two.here)
            listening.bind("sock")
            (two.here / "f").write_text("x")
            await two.cycle.compare()
        assert two.both("f") == ("x", "x")
        assert two.cycle.status.problems == {b"pipe": "special_file", b"sock": "special_file"}


async def test_a_same_size_write_within_the_same_tick_is_found_at_the_next_look(tmp_path: Path) -> None:
    with two_folders(tmp_path) as two:
        path = two.here / "f"
        path.write_text("one")
        stamp = path.stat()
        await two.cycle.compare()
        path.write_text("two")
        os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
        await two.cycle.follow({b""})
        assert two.both("f") == ("two", "two")


async def test_a_file_that_changed_after_it_was_looked_at_is_not_half_sent_and_comes_next(tmp_path: Path) -> None:
    with two_folders(tmp_path) as two:
        contents = {"small": 100, "packed": 100_000, "blob": 5 * 1024 * 1024}
        for name, size in contents.items():
            (two.here / name).write_bytes(b"a" * size)
        await two.pair.look()
        planned = two.pair.compare()
        (two.here / "small").write_bytes(b"b" * 99)
        (two.here / "packed").write_bytes(b"b" * 50)
        (two.here / "blob").write_bytes(b"b" * 6 * 1024 * 1024)
        outcomes = await two.pair.push(planned.changes, lambda done, size_bytes: None)
        assert outcomes.again == {b"small", b"packed", b"blob"}
        assert list(two.there.iterdir()) == []
        await two.cycle.compare()
        assert (two.there / "packed").read_bytes() == b"b" * 50
        assert (two.there / "blob").stat().st_size == 6 * 1024 * 1024


async def test_a_large_content_goes_on_where_it_was_cut(tmp_path: Path) -> None:
    sent = 0

    def cut(point: str) -> None:
        nonlocal sent
        sent += point == "sending"
        if point == "sending" and sent == 4:
            raise GuestUnreachable(point)

    with two_folders(tmp_path, fault=cut) as two:
        (two.here / "blob").write_bytes(os.urandom(6 * 1024 * 1024))
        with pytest.raises(GuestUnreachable):
            await two.cycle.compare()
        assert list(two.there.iterdir()) == []
        await two.cycle.compare()
        assert (two.there / "blob").read_bytes() == (two.here / "blob").read_bytes()
        # Six pieces, one of them twice at most, and the frames of the batch that names them.
        assert sent <= 9


async def test_ignored_output_below_a_deleted_folder_stays_without_an_error_that_repeats(tmp_path: Path) -> None:
    with two_folders(tmp_path) as two:
        (two.here / ".gitignore").write_text("build/\n")
        (two.here / "d").mkdir()
        (two.here / "d" / "src").write_text("x")
        (two.here / "e").write_text("x")
        await two.cycle.compare()
        (two.there / "d" / "build").mkdir()
        (two.there / "d" / "build" / "o").write_text("o")
        shutil.rmtree(two.here / "d")
        await two.cycle.compare()
        assert sorted(path.name for path in (two.there / "d").iterdir()) == ["build"]
        await two.cycle.compare()
        assert not two.cycle.status.problems and not two.cycle.status.conflicts


async def test_the_sandboxs_clock_decides_nothing(tmp_path: Path) -> None:
    with two_folders(tmp_path) as two:
        (two.here / "a").write_text("base")
        (two.here / "b").write_text("base")
        await two.cycle.compare()
        (two.there / "a").write_text("theirs")
        os.utime(two.there / "a", (0, 0))
        (two.here / "b").write_text("mine")
        os.utime(two.here / "b", (0, 0))
        await two.cycle.compare()
        assert two.both("a") == ("base", "theirs")
        assert two.both("b") == ("mine", "mine")
