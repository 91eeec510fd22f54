"""What waits beside a tree and what is kept there: uploads in pieces, the trash, left-overs of killed processes."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sbxguest.opentree import OpenTree
from sbxguest.state import GuestSettings
from sbxguest.tree import Outcome, Source, State, TreeError
from sbxguest.tree.batch import Batch
from sbxguest.tree.entry import Entry
from sbxguest.tree.root import Root
from sbxguest.tree.stage import Stage
from sbxguest.tree.trash import Trash
from sbxguest.treeroutes import _results
from tests.support.tree_side import TreeSide, delete, file, made_of, outcomes, put, put_known, sha, stream_of, tree_side

DONE = Outcome.DONE
LARGE = os.urandom(300_000)


@pytest.fixture
def side(tmp_path: Path) -> Iterator[TreeSide]:
    with tree_side(tmp_path / "tree") as made:
        yield made
        assert made.is_stage_empty()


def test_the_trash_is_bounded_by_size_and_the_newest_batch_stays(tmp_path: Path) -> None:
    with tree_side(tmp_path / "tree", trash_bytes=1_000_000) as side:
        for number in range(4):
            side.apply(*put(b"f", bytes([number]) * 400_000, side.state(b"f")))
        assert len(side.trash.batches()) == 2
        side.apply(*put(b"f", b"x", side.state(b"f")))
        assert [one[:1] for one in side.trashed().values()] == [b"\x03"]


def test_a_full_disk_makes_room_from_the_trash_before_it_refuses(side: TreeSide) -> None:
    side.apply(*put(b"f", b"1"))
    side.apply(*put(b"f", b"2", file(b"1")))
    assert side.trash.make_room() and not side.trash.make_room()
    assert side.trashed() == {}


def test_a_blob_goes_on_where_it_was_cut_and_is_checked(side: TreeSide) -> None:
    digest = sha(LARGE)
    half = len(LARGE) // 2
    writer = side.blobs.open(digest, offset=0, size_bytes=len(LARGE))
    writer.write([LARGE[:half]])
    assert side.blobs.close(writer) == (half, False)
    assert side.apply(*put_known(b"f", LARGE, Source.BLOB)).code == "content_missing"
    with pytest.raises(TreeError, match="bytes are here"):
        side.blobs.open(digest, offset=0, size_bytes=len(LARGE))
    writer = side.blobs.open(digest, offset=half, size_bytes=len(LARGE))
    writer.write([LARGE[half : half + 1], LARGE[half + 1 :]])
    assert side.blobs.close(writer) == (len(LARGE), True)
    steps = [put_known(b"f", LARGE, Source.BLOB), put_known(b"g", LARGE, Source.BLOB)]
    assert outcomes(side.send("both", steps)) == [DONE, DONE]
    assert (side.folder / "f").read_bytes() == (side.folder / "g").read_bytes() == LARGE
    assert (side.folder / "f").stat().st_ino != (side.folder / "g").stat().st_ino
    assert side.blobs.state(digest) == (0, False)


def test_a_blob_of_before_a_restart_goes_on_too(tmp_path: Path) -> None:
    digest = sha(LARGE)
    with tree_side(tmp_path / "tree") as side:
        writer = side.blobs.open(digest, offset=0, size_bytes=len(LARGE))
        writer.write([LARGE[:1000]])
        side.blobs.close(writer)
    with tree_side(tmp_path / "tree") as side:
        writer = side.blobs.open(digest, offset=1000, size_bytes=len(LARGE))
        writer.write([LARGE[1000:]])
        assert side.blobs.close(writer) == (len(LARGE), True)


def test_a_blob_with_another_content_is_thrown_away(side: TreeSide) -> None:
    digest = sha(b"said")
    writer = side.blobs.open(digest, offset=0, size_bytes=4)
    writer.write([b"sent"])
    with pytest.raises(TreeError, match="announced"):
        side.blobs.close(writer)
    assert side.blobs.state(digest) == (0, False)
    writer = side.blobs.open(digest, offset=0, size_bytes=4)
    with pytest.raises(TreeError, match="longer"):
        writer.write([b"far too long"])
    side.blobs.close(writer)


def test_who_begins_anew_takes_an_upload_over(side: TreeSide) -> None:
    digest = sha(b"abcd")
    old = side.blobs.open(digest, offset=0, size_bytes=4)
    old.write([b"ab"])
    new = side.blobs.open(digest, offset=2, size_bytes=4)
    with pytest.raises(TreeError, match="another request"):
        old.write([b"XX"])
    assert side.blobs.close(old) == (2, False)
    new.write([b"cd"])
    assert side.blobs.close(new) == (4, True)


def test_a_stage_that_belongs_to_somebody_else_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    with tree_side(tmp_path / "tree") as side:
        beside = Path(side.stage.path)
    assert beside.parent == tmp_path
    beside.chmod(0o777)
    with tree_side(tmp_path / "tree") as side:
        assert Path(side.stage.path).parent == tmp_path / "tree"
        assert outcomes(side.send("one", [put(b"f", b"x")])) == [DONE]
        assert side.state(b"f") == side.state(b"f") and not side.state(os.fsencode(Path(side.stage.path).name))


def test_a_stage_that_cannot_be_opened_whole_is_not_used_and_nothing_of_it_stays_open(tmp_path: Path) -> None:
    with tree_side(tmp_path / "tree") as side:
        beside = Path(side.stage.path)
    (beside / "trash").rmdir()
    (beside / "trash").touch()
    with contextlib.closing(Root(str(tmp_path / "tree"))) as root:
        before = os.listdir("/proc/self/fd")
        with pytest.raises(TreeError, match="no place"):
            Stage(root, [str(beside)])
        assert os.listdir("/proc/self/fd") == before
    with tree_side(tmp_path / "tree") as side:
        assert Path(side.stage.path).parent == tmp_path / "tree"
        assert outcomes(side.send("one", [put(b"f", b"x")])) == [DONE]


def test_what_is_removed_from_the_trash_is_forgotten(side: TreeSide) -> None:
    for number in range(3):
        side.send(f"{number}", [put(b"f%d" % number, b"same"), put(b"g", b"%d" % number, side.state(b"g"))])
        side.send(f"gone {number}", [delete(b"f%d" % number, file(b"same"))])
    while side.trash.make_room():
        newest = side.trash.find(sha(b"same"))
        assert (newest is None) is not bool(side.trash.batches())
        if newest is not None:
            os.close(newest)
    assert side.trash._by_digest == {}


def test_what_was_on_its_way_when_a_process_ended_is_removed(tmp_path: Path) -> None:
    with tree_side(tmp_path / "tree") as side:
        left = Path(side.stage.path) / "incoming/left"
        left.write_bytes(b"x")
    with tree_side(tmp_path / "tree") as side:
        assert not left.exists() and side.is_stage_empty()


@pytest.mark.parametrize("is_waiting", [True, False])
async def test_a_batch_that_is_let_go_of_before_its_turn_leaves_nothing(tmp_path: Path, is_waiting: bool) -> None:
    (tmp_path / "tree").mkdir()
    tree = OpenTree(str(tmp_path / "tree"), GuestSettings("boot", workdir=str(tmp_path / "tree")))
    incoming = Batch(tree.applier, tree.blobs, "one")
    incoming.write([stream_of([put(b"f", b"x")])])
    assert os.listdir(tree.stage.incoming_fd)
    async with tree.turn("one"):
        results = _results(tree, incoming, "one")
        assert await anext(results) == b""
        if is_waiting:
            waiting = asyncio.ensure_future(anext(results))
            asyncio.get_running_loop().call_soon(waiting.cancel)
            with pytest.raises(asyncio.CancelledError):
                await waiting
        await results.aclose()
    assert os.listdir(tree.stage.incoming_fd) == [] and not (tmp_path / "tree/f").exists()
    with pytest.raises(TreeError, match="given up"):
        incoming.write([b"x"])


def test_a_list_of_the_trash_survives_a_half_written_line(side: TreeSide) -> None:
    side.send("one", [put(b"f", b"x")])
    side.send("two", [delete(b"f", file(b"x"))])
    with (Path(side.stage.path) / "trash/two/index").open("ab") as index:
        index.write(b"\0\0\0")
    [one] = side.trash.items("two")
    assert (one.seq, one.entry) == (0, Entry(b"f", one.entry.state)) and one.entry.state.content == sha(b"x")
    assert side.trash.items("never") == []


def test_a_write_in_the_very_moment_after_a_batch_is_seen_however_coarse_the_clock_is(side: TreeSide) -> None:
    state = side.apply(*put(b"f", b"0" * 100)).state
    for number in range(1, 30):
        state = side.apply(*put(b"f", b"%d" % (number % 10) * 100, state)).state
        fd = os.open(side.folder / "f", os.O_WRONLY)
        os.write(fd, b"x")
        os.close(fd)
        refused = side.apply(*put(b"f", b"mine", state))
        assert refused.outcome is Outcome.MISMATCH
        state = refused.state


def test_a_trash_that_another_process_empties_between_two_operations_takes_the_next_one(side: TreeSide) -> None:
    names = [b"f%d" % number for number in range(6)]
    side.send("one", [put(name, b"x") for name in names])
    batch = Batch(side.applier, side.blobs, "two")
    batch.write([stream_of([put(name, name, file(b"x")) for name in names])])
    with contextlib.closing(Stage(side.root, (side.stage.path,))) as stage:
        other = Trash(stage)

        def empty(path: bytes, _state: State | None) -> None:
            if path == b"f2":
                other.make_room()

        results = made_of(batch, empty)
    batch.abort()
    assert outcomes(results) == [DONE] * 6
    assert {one.entry.path for one in side.trash.items("two")} == set(names[3:])
