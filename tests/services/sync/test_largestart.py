"""Large files that go to an empty folder of a sandbox while they are read: all of it, once, whatever comes between."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from sbxtui.core.errors import GuestUnreachable
from sbxtui.guest.treewire import BlobState
from sbxtui.services.sync.gauge import TakesLong
from tests.services.sync.pairs import TwoFolders, two_folders

MIB = 1024 * 1024
SIZE_BYTES = 5 * MIB + 1


class Guest:
    """Calls something when so much was sent."""

    def __init__(self) -> None:
        self.acts: dict[int, Callable[[], None]] = {}
        self.pieces = 0

    def __call__(self, point: str) -> None:
        """A point was reached."""
        if point == "sending":
            self.pieces += 1
            self.acts.pop(self.pieces, lambda: None)()


@pytest.fixture
def guest() -> Guest:
    return Guest()


@pytest.fixture
def two(tmp_path: Path, guest: Guest) -> Iterator[TwoFolders]:
    with pytest.MonkeyPatch.context() as patch, two_folders(tmp_path, fault=guest) as folders:
        patch.setattr("sbxtui.services.sync.largestart._LARGE_BYTES", 2 * MIB)
        (folders.here / "data").mkdir(parents=True)
        (folders.here / "data" / "large").write_bytes(os.urandom(SIZE_BYTES))
        (folders.here / "small").write_text("small")
        yield folders


def _is_equal(two: TwoFolders) -> bool:
    names = ("data/large", "small")
    return all((two.here / name).read_bytes() == (two.there / name).read_bytes() for name in names)


def _staged(two: TwoFolders) -> list[str]:
    return [path.name for path in two.there.parent.rglob("*") if len(path.name) >= 64]


async def test_it_is_read_and_sent_once(two: TwoFolders) -> None:
    await two.cycle.compare()
    assert _is_equal(two) and two.guest.uploaded_bytes == SIZE_BYTES
    assert two.cycle.status.sent_bytes == SIZE_BYTES + len("small") and not _staged(two)


async def test_an_older_guest_gets_it_by_its_digest(two: TwoFolders, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(two.guest, "names_contents", False)
    await two.cycle.compare()
    assert _is_equal(two) and two.guest.uploaded_bytes == SIZE_BYTES


async def test_what_arrived_before_a_cut_is_not_sent_again(two: TwoFolders, guest: Guest) -> None:
    def cut() -> None:
        raise GuestUnreachable("the connection broke")

    guest.acts[3] = cut
    await two.cycle.compare()
    assert _is_equal(two) and two.guest.uploaded_bytes == SIZE_BYTES


async def test_what_a_killed_process_sent_is_not_sent_again(two: TwoFolders, guest: Guest, tmp_path: Path) -> None:
    class Killed(BaseException):
        pass

    def kill() -> None:
        raise Killed

    guest.acts[3] = kill
    with pytest.raises(Killed):
        await two.cycle.compare()
    sent_bytes = two.guest.uploaded_bytes
    with two_folders(tmp_path) as again:
        await again.cycle.compare()
        assert _is_equal(again) and sent_bytes + again.guest.uploaded_bytes == SIZE_BYTES


async def test_what_a_killed_process_had_on_its_way_is_not_sent_again_either(
    two: TwoFolders, guest: Guest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def kill() -> None:
        raise Killed

    async def arriving(pieces: int) -> AsyncIterator[bytes]:
        yield content[MIB * pieces : MIB * (pieces + 1)]

    guest.acts[3] = kill
    with pytest.raises(Killed):
        await two.cycle.compare()
    content, sent_bytes = (two.here / "data" / "large").read_bytes(), two.guest.uploaded_bytes
    with two_folders(tmp_path) as again:
        asked = again.guest.blob

        async def blob(digest: bytes) -> BlobState:
            state = await asked(digest)
            if state.offset == 3 * MIB:
                pieces = arriving(3)
                await again.guest.upload_blob(
                    digest, pieces, offset=state.offset, size_bytes=SIZE_BYTES, is_provisional=True
                )
            return state

        monkeypatch.setattr(again.guest, "blob", blob)
        await again.cycle.compare()
        assert _is_equal(again) and sent_bytes + again.guest.uploaded_bytes == SIZE_BYTES


async def test_what_a_killed_process_sent_whole_is_not_sent_again(
    two: TwoFolders, guest: Guest, tmp_path: Path
) -> None:
    class Killed(BaseException):
        pass

    def kill() -> None:
        raise Killed

    (two.here / "data" / "other").write_bytes(os.urandom(SIZE_BYTES))
    # Of twelve pieces: all of one of them at least.
    guest.acts[11] = kill
    with pytest.raises(Killed):
        await two.cycle.compare()
    sent_bytes = two.guest.uploaded_bytes
    # Nothing was agreed on: so it is when looking takes longer than sending.
    shutil.rmtree(two.state_dir)
    with two_folders(tmp_path) as again:
        await again.cycle.compare()
        assert _is_equal(again) and sent_bytes + again.guest.uploaded_bytes == 2 * SIZE_BYTES
        assert not _staged(again)


async def test_a_way_that_is_much_slower_than_reading_does_not_hold_up_looking(
    two: TwoFolders, guest: Guest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sbxtui.services.sync.largestart._WAITING_PIECES", 1)
    monkeypatch.setattr("sbxtui.services.sync.largestart._PATIENCE_S", 0.0)
    await two.cycle.compare()
    assert _is_equal(two) and two.guest.uploaded_bytes == SIZE_BYTES


async def test_what_takes_long_to_look_at_goes_on_where_it_was(
    two: TwoFolders, guest: Guest, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0

    def check(_gauge: object) -> None:
        nonlocal looks
        looks += 1
        if looks == 5:
            raise TakesLong

    monkeypatch.setattr("sbxtui.services.sync.gauge.Gauge.check", check)
    await two.cycle.compare()
    assert _is_equal(two) and two.guest.uploaded_bytes <= SIZE_BYTES


async def test_what_several_files_hold_is_sent_once(two: TwoFolders, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(two.guest, "names_contents", False)
    content = (two.here / "data" / "large").read_bytes()
    for number in range(6):
        (two.here / f"d{number}" / "e").mkdir(parents=True)
        (two.here / f"d{number}" / "e" / "alike").write_bytes(content)
    await two.cycle.compare()
    assert _is_equal(two) and two.guest.uploaded_bytes == SIZE_BYTES and not two.cycle.look_again
    assert all((two.there / f"d{number}" / "e" / "alike").read_bytes() == content for number in range(6))


async def test_a_file_that_is_written_meanwhile_arrives_as_it_is_in_the_end(two: TwoFolders, guest: Guest) -> None:
    path = two.here / "data" / "large"

    def append() -> None:
        with path.open("ab") as file:
            file.write(b"more")

    guest.acts[2] = append
    await two.cycle.compare()
    await two.cycle.follow({b"data/large"})
    assert _is_equal(two) and path.stat().st_size == SIZE_BYTES + 4


async def test_a_disk_that_is_full_is_told_once(two: TwoFolders, guest: Guest, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_args: object) -> None:
        raise OSError(28, "no space left on device")

    monkeypatch.setattr("sbxguest.tree.blobs.write_all", full)
    await two.cycle.compare()
    assert two.cycle.status.failed == {b"data/large": "disk_full"}
    monkeypatch.undo()
    await two.cycle.compare()
    assert _is_equal(two) and not two.cycle.status.failed


async def test_no_more_than_a_share_of_it_is_sent_before_a_person_is_asked(
    two: TwoFolders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sbxtui.services.sync.largestart._MAX_BYTES", MIB)
    monkeypatch.setattr("sbxtui.services.sync.halts._LARGE_SEED_BYTES", 1000)
    await two.cycle.compare()
    assert two.cycle.status.halts == ("large_seed",) and not two.guest.uploaded_bytes
