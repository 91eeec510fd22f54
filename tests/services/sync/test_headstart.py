"""What an empty folder of a sandbox gets while this machine's is still looked at: all of it in the end, or nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from sbxtui.core.errors import GuestUnreachable
from sbxtui.services.sync.model import Mode
from tests.services.sync.pairs import TwoFolders, two_folders

CUT = "the connection broke"


class Guest:
    """What the sandbox's end was asked, and what is to happen to it then."""

    def __init__(self) -> None:
        self.points: list[str] = []
        self.at: dict[str, Callable[[], None]] = {}

    def __call__(self, point: str) -> None:
        """A point was reached."""
        self.points.append(point)
        act = self.at.pop(point, None)
        if act is not None:
            act()


@pytest.fixture
def guest() -> Guest:
    return Guest()


@pytest.fixture(params=list(Mode))
def two(tmp_path: Path, guest: Guest, request: pytest.FixtureRequest) -> Iterator[TwoFolders]:
    # Every file is worth a beginning then.
    with pytest.MonkeyPatch.context() as patch, two_folders(tmp_path, mode=request.param, fault=guest) as folders:
        patch.setattr("sbxtui.services.sync.headstart._PIECE_BYTES", 1)
        for number in range(20):
            path = folders.here / f"d{number % 3}" / f"e{number % 2}" / f"f{number}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"content {number}")
        (folders.here / "large").write_bytes(os.urandom(100_000))
        (folders.here / "run").write_text("run")
        (folders.here / "run").chmod(0o755)
        (folders.here / "empty").mkdir()
        (folders.here / "link").symlink_to("run")
        yield folders


def _tree(root: Path) -> dict[str, object]:
    """What stands in a folder."""
    found: dict[str, object] = {}
    for path in sorted(root.rglob("*")):
        name = os.fspath(path.relative_to(root))
        if path.is_symlink():
            found[name] = os.readlink(path)
        else:
            found[name] = "folder" if path.is_dir() else (path.read_bytes(), path.stat().st_mode & 0o777)
    return found


def _write(path: Path, text: str) -> None:
    path.write_text(text)


def _break() -> None:
    raise GuestUnreachable(CUT)


async def test_all_arrives_and_nothing_is_left_to_do(two: TwoFolders, guest: Guest) -> None:
    await two.cycle.compare()
    assert _tree(two.there) == _tree(two.here) and len(_tree(two.here)) == 33
    # The large file comes by itself, behind all else.
    assert guest.points.count("answering") == 2 and two.guest.sent == [b"large"]
    assert two.cycle.status.pushed == 33 and not two.cycle.look_again
    guest.points.clear()
    assert await two.cycle.follow({b""}) == 0 and not guest.points
    assert two.pair.base.keys() == two.pair.local.states.keys() == two.pair.there.states.keys()
    await two.cycle.compare()
    assert not two.pair.compare().changes and "answering" not in guest.points


async def test_nothing_is_made_where_a_person_has_to_be_asked(
    two: TwoFolders, monkeypatch: pytest.MonkeyPatch, guest: Guest
) -> None:
    monkeypatch.setattr("sbxtui.services.sync.halts._LARGE_SEED_BYTES", 1000)
    await two.cycle.compare()
    assert two.cycle.status.halts == ("large_seed",) and not _tree(two.there)
    assert "sending" in guest.points and "making" not in guest.points


async def test_what_came_to_the_sandbox_meanwhile_is_kept(two: TwoFolders, guest: Guest) -> None:
    guest.at["sending"] = partial(_write, two.there / "d0", "theirs")
    await two.cycle.compare()
    if two.pair.mode is Mode.MIRROR:
        assert two.cycle.status.halts or (two.there / "d0").is_dir()
        return
    assert (two.there / "d0").read_text() == "theirs" and b"d0" in two.pair.conflicts
    assert (two.there / "run").read_text() == "run"


async def test_what_comes_to_the_sandbox_at_the_last_moment_is_kept(two: TwoFolders, guest: Guest) -> None:
    def save() -> None:
        (two.there / "d0").mkdir()
        (two.there / "d0" / "own").write_text("own")
        (two.there / "run").write_text("theirs")

    guest.at["making"] = save
    await two.cycle.compare()
    assert (two.there / "d0" / "own").read_text() == "own" and (two.there / "run").read_text() == "theirs"
    assert (two.there / "d0" / "e0" / "f0").read_text() == "content 0"


async def test_a_head_start_that_is_cut_off_is_none(two: TwoFolders, guest: Guest) -> None:
    guest.at["sending"] = _break
    await two.cycle.compare()
    assert _tree(two.there) == _tree(two.here)


async def test_one_that_is_cut_off_while_it_is_made_is_gone_on_with(two: TwoFolders, guest: Guest) -> None:
    for point in ("making", "answering"):
        guest.at[point] = _break
        with pytest.raises(GuestUnreachable):
            await two.cycle.compare()
    await two.cycle.compare()
    assert _tree(two.there) == _tree(two.here)


async def test_what_is_saved_while_it_is_on_its_way_comes_later(two: TwoFolders, guest: Guest) -> None:
    guest.at["making"] = partial(_write, two.here / "run", "saved")
    await two.cycle.compare()
    await two.cycle.follow({b"run"})
    assert (two.there / "run").read_text() == "saved"


async def test_what_is_too_much_for_it_comes_as_ever(two: TwoFolders, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sbxtui.services.sync.headstart._MAX_OPS", 7)
    await two.cycle.compare()
    assert _tree(two.there) == _tree(two.here)
    assert two.pair.base.keys() == two.pair.local.states.keys()


async def test_a_folder_that_is_gone_halts(two: TwoFolders) -> None:
    two.there.rmdir()
    await two.cycle.compare()
    assert two.cycle.status.halts == ("guest_root_missing",)


async def test_what_was_told_before_the_answer_broke_off_is_written_down(two: TwoFolders, guest: Guest) -> None:
    guest.at["answering"] = _break
    with pytest.raises(GuestUnreachable):
        await two.cycle.compare()
    told = two.pair.base.keys()
    assert told and told < two.pair.local.states.keys() and two.pair.base[b"d0"].is_dir


async def test_a_guest_says_how_much_it_takes(two: TwoFolders, monkeypatch: pytest.MonkeyPatch, guest: Guest) -> None:
    monkeypatch.setattr(two.guest, "max_operations", 7)
    await two.cycle.compare()
    assert _tree(two.there) == _tree(two.here)
    assert guest.points[: guest.points.index("answering")].count("making") == 7
