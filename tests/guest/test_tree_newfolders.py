"""New folders of a batch: each in its place in one step with all that is in it, or made one by one where that fails."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sbxguest.tree import Outcome, Source, State
from sbxguest.tree.batch import Batch
from sbxguest.tree.stage import write_all
from tests.support.tree_side import (
    Content,
    TreeSide,
    delete,
    file,
    link,
    made_of,
    mkdir,
    outcomes,
    put,
    put_known,
    sha,
    stream_of,
    tree_side,
)

DONE, MISMATCH = Outcome.DONE, Outcome.MISMATCH
TREE = [
    mkdir(b"d"),
    put(b"d/f", b"1"),
    put(b"d/run", b"2", is_executable=True),
    link(b"d/l", b"f"),
    mkdir(b"d/e"),
    put(b"d/e/g", b"3"),
    mkdir(b"d/e/empty"),
    put(b"d/large", b"4" * 100_000),
]


@pytest.fixture
def side(tmp_path: Path) -> Iterator[TreeSide]:
    with tree_side(tmp_path / "tree") as made:
        yield made
        assert made.is_stage_empty()


def _whole(side: TreeSide, steps: list[Content]) -> Batch:
    """A batch all of which came in."""
    batch = Batch(side.applier, side.blobs, os.urandom(8).hex())
    batch.write([stream_of(steps)])
    return batch


def _is_all_there(folder: Path) -> bool:
    d = folder / "d"
    contents = [(d / "f").read_bytes(), (d / "run").read_bytes(), (d / "e/g").read_bytes()]
    modes = [path.stat().st_mode & 0o777 for path in (d, d / "f", d / "run")]
    is_rest_there = (d / "e/empty").is_dir() and (d / "large").stat().st_size == 100_000
    return contents == [b"1", b"2", b"3"] and modes == [0o755, 0o644, 0o755] and is_rest_there


def test_a_folder_comes_with_all_in_it_and_the_stamps_that_were_told_are_those_it_has(side: TreeSide) -> None:
    batch = _whole(side, TREE)
    assert not (side.folder / "d").exists()
    results = made_of(batch)
    batch.abort()
    assert outcomes(results) == [DONE] * len(TREE) and _is_all_there(side.folder)
    assert (side.folder / "d/l").readlink() == Path("f")
    for (op, _), result in zip(TREE, results, strict=True):
        state = side.state(op.path)
        assert state is not None and state == result.state and state.stamp is not None and result.state.stamp
        if not state.is_dir:
            assert state.stamp == result.state.stamp
        assert state.stamp.inode == result.state.stamp.inode


def test_who_has_made_the_folder_meanwhile_keeps_what_is_in_it(side: TreeSide) -> None:
    batch = _whole(side, TREE)
    (side.folder / "d/e").mkdir(parents=True)
    (side.folder / "d/f").write_bytes(b"theirs")
    (side.folder / "d/e/own").write_bytes(b"own")
    results = made_of(batch)
    batch.abort()
    assert outcomes(results) == [DONE, MISMATCH, *[DONE] * 6]
    assert results[1].state == file(b"theirs")
    assert (side.folder / "d/f").read_bytes() == b"theirs" and (side.folder / "d/e/own").read_bytes() == b"own"
    (side.folder / "d/f").write_bytes(b"1")
    assert _is_all_there(side.folder)


def test_nothing_is_made_in_what_is_no_folder(side: TreeSide, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for stands in (lambda: (side.folder / "d").symlink_to(elsewhere), lambda: (side.folder / "d").write_bytes(b"x")):
        batch = _whole(side, TREE)
        stands()
        results = made_of(batch)
        batch.abort()
        assert results[0].outcome is MISMATCH and {one.outcome for one in results[1:]} == {Outcome.FAILED}
        assert not list(elsewhere.iterdir()) and side.is_stage_empty()
        (side.folder / "d").unlink()


def test_what_has_a_name_already_is_decided_by_itself(side: TreeSide) -> None:
    steps = [
        mkdir(b"d"),
        put(b"d/f", b"1"),
        put(b"d/f", b"2"),
        put(b"d/f", b"3", file(b"1")),
        delete(b"d/f", file(b"3")),
    ]
    more = [link(b"d/l", b"/etc"), mkdir(b"d/l"), put(b"d/l/f", b"1"), mkdir(b"d"), put(b"d/bad", b"1")]
    op, content = more[-1]
    results = side.send("one", [*steps, *more[:-1], (op, content[:0] + b"2")])
    assert outcomes(results[:5]) == [DONE, DONE, MISMATCH, DONE, DONE]
    assert outcomes(results[5:8]) == [DONE, MISMATCH, "not_a_directory"]
    assert outcomes(results[8:]) == [DONE, "wrong_content"]
    assert sorted(path.name for path in (side.folder / "d").iterdir()) == ["l"]


def test_a_batch_that_comes_again_finds_its_folders(side: TreeSide) -> None:
    for batch_id in ("one", "one", "two"):
        assert outcomes(side.send(batch_id, TREE)) == [DONE] * len(TREE)
    assert _is_all_there(side.folder) and side.trashed() == {}


def test_a_batch_that_stopped_between_its_folders_goes_on_from_there(side: TreeSide) -> None:
    steps = [step for n in range(100) for step in (mkdir(b"d%d" % n), put(b"d%d/f" % n, b"%d" % n))]
    batch = Batch(side.applier, side.blobs, "half")
    batch.write([stream_of(steps)])
    next(batch.results())
    batch.abort()
    assert 0 < len(list(side.folder.iterdir())) < 100
    assert outcomes(side.send("half", steps)) == [DONE] * 200
    assert all((side.folder / f"d{n}/f").read_bytes() == b"%d" % n for n in range(100))


def test_of_two_requests_with_the_same_batch_one_makes_it(side: TreeSide) -> None:
    batches = [Batch(side.applier, side.blobs, "same") for _ in range(2)]
    for batch in batches:
        batch.write([stream_of(TREE)])
    first, second = [made_of(batch) for batch in batches]
    for batch in batches:
        batch.abort()
    assert outcomes(first) == [DONE] * len(TREE) and second == first
    assert _is_all_there(side.folder) and side.trashed() == {}


def test_a_cut_batch_leaves_nothing(side: TreeSide) -> None:
    data = stream_of(TREE)
    for length in (len(data) // 3, len(data) - 1):
        batch = Batch(side.applier, side.blobs, "cut")
        batch.write([data[:length]])
        batch.abort()
        assert not list(side.folder.iterdir()) and side.is_stage_empty()


def test_what_a_killed_process_was_building_goes_when_the_stage_is_opened(tmp_path: Path) -> None:
    with tree_side(tmp_path / "tree") as side:
        _whole(side, TREE)
        assert not side.is_stage_empty()
    with tree_side(tmp_path / "tree") as side:
        assert side.is_stage_empty()
        assert outcomes(side.send("two", TREE)) == [DONE] * len(TREE) and _is_all_there(side.folder)


def test_a_full_disk_leaves_no_part_of_a_file(side: TreeSide, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, piece: bytes, make_room: Callable[[], bool]) -> None:
        if piece == b"2":
            os.write(fd, b"half")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write_all(fd, piece, make_room)

    monkeypatch.setattr("sbxguest.tree.newfolders.write_all", full)
    assert outcomes(side.send("one", TREE)) == [DONE, DONE, "disk_full", *[DONE] * 5]
    assert not (side.folder / "d/run").exists()
    monkeypatch.undo()
    assert outcomes(side.send("two", TREE)) == [DONE] * len(TREE) and _is_all_there(side.folder)


def test_where_a_folder_cannot_be_moved_all_is_made_one_by_one(side: TreeSide, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sbxguest.tree.moves._renameat2", None)
    assert outcomes(side.send("one", TREE)) == [DONE] * len(TREE) and _is_all_there(side.folder)


def test_a_content_from_elsewhere_goes_into_a_new_folder_too(side: TreeSide) -> None:
    side.send("one", [put(b"old", b"content")])
    steps = [mkdir(b"d"), put(b"d/a", b"1"), put_known(b"d/f", b"content", Source.KNOWN, b"old")]
    assert outcomes(side.send("two", steps)) == [DONE] * 3
    assert (side.folder / "d/f").read_bytes() == b"content" and side.state(b"d/a") == file(b"1")


def test_odd_names_are_built_too(side: TreeSide) -> None:
    steps = [mkdir(b"\xff \n"), put(b"\xff \n/\xfe$(x)", b"1")]
    (side.folder / "made").mkdir()
    assert outcomes(side.send("one", steps)) == [DONE] * 2
    batch = _whole(side, [mkdir(b"\xfd"), put(b"\xfd/\xfc", b"1")])
    os.mkdir(os.fsencode(side.folder) + b"/\xfd")
    assert outcomes(made_of(batch)) == [DONE] * 2
    batch.abort()
    assert sha(b"1") == (side.state(b"\xfd/\xfc") or State.packed(b"")).content


def test_who_watches_is_told_of_what_comes_before_it_is_there(side: TreeSide) -> None:
    told: list[tuple[bytes, bool]] = []
    batch = _whole(side, TREE[:2])
    made_of(batch, lambda path, _state: told.append((path, (side.folder / "d").exists())))
    batch.abort()
    assert told[:2] == [(b"d", False), (b"d/f", False)]
