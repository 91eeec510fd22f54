"""Trees under attack: folders that turn into links while operations are made, and disks that are full."""

from __future__ import annotations

import errno
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sbxguest.tree import Outcome, Source
from tests.support.tree_side import TreeSide, delete, file, mkdir, outcomes, put, put_known, sha, tree_side

MIB = 2**20


def test_folders_that_turn_into_links_lead_nothing_outside(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "f").write_bytes(b"precious")
    with tree_side(tmp_path / "tree") as side:
        (side.folder / "d").mkdir()
        (side.folder / "l").symlink_to("../outside")
        done = threading.Event()

        def swap() -> None:
            while not done.is_set():
                for old, new in (("d", "x"), ("l", "d"), ("d", "l"), ("x", "d")):
                    os.rename(side.folder / old, side.folder / new)

        swapper = threading.Thread(target=swap)
        swapper.start()
        made = 0
        try:
            for number in range(300):
                results = side.send(
                    f"b{number}",
                    [
                        put(b"d/f", b"mine %d" % number, file(b"mine %d" % (number - 1)) if number % 2 else None),
                        put(b"d/n%d" % number, b"x"),
                        mkdir(b"d/m%d" % number),
                        delete(b"d/f", file(b"precious")),
                    ],
                )
                made += sum(one.outcome is Outcome.DONE for one in results)
        finally:
            done.set()
            swapper.join()
        assert os.listdir(outside) == ["f"] and (outside / "f").read_bytes() == b"precious"
        assert made and side.is_stage_empty()
        assert b"precious" not in side.trashed().values()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[TreeSide]:
    """A tree on a file system of 4 MiB, which is its own mount: its stage is in it."""
    folder = tmp_path / "tree"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(folder)]
    if subprocess.run(command, capture_output=True, check=False, timeout=10).returncode:
        pytest.skip("mounting a small file system needs root with its capabilities")
    try:
        with tree_side(folder) as side:
            yield side
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True, timeout=10)


def test_a_full_disk_leaves_the_old_file_and_what_fits_goes_through(small_disk: TreeSide) -> None:
    side = small_disk
    assert Path(side.stage.path).parent == side.folder
    old, large = b"old", os.urandom(3 * MIB)
    assert outcomes(side.send("one", [put(b"f", old), put(b"filler", large)])) == [Outcome.DONE] * 2
    results = side.send("two", [put(b"f", large, file(old)), put(b"small", b"x"), put(b"g", large)])
    assert outcomes(results) == ["disk_full", Outcome.DONE, "disk_full"]
    assert (side.folder / "f").read_bytes() == old and (side.folder / "small").read_bytes() == b"x"
    assert side.is_stage_empty() and not (side.folder / "g").exists()
    (side.folder / "filler").unlink()
    assert outcomes(side.send("three", [put(b"f", large, file(old))])) == [Outcome.DONE]
    assert (side.folder / "f").read_bytes() == large


def test_what_is_in_the_trash_gives_way_to_what_is_needed(small_disk: TreeSide) -> None:
    side = small_disk
    first, second = os.urandom(3 * MIB), os.urandom(3 * MIB)
    assert outcomes(side.send("one", [put(b"f", first)])) == [Outcome.DONE]
    assert outcomes(side.send("two", [delete(b"f", file(first))])) == [Outcome.DONE]
    assert side.trashed() == {b"f": first}
    assert outcomes(side.send("three", [put(b"g", second)])) == [Outcome.DONE]
    assert (side.folder / "g").read_bytes() == second and side.trashed() == {}


def test_what_is_deleted_to_make_room_makes_it_also_where_there_is_none_at_all(small_disk: TreeSide) -> None:
    side = small_disk
    first, second = os.urandom(MIB), os.urandom(MIB - 65536)
    assert outcomes(side.send("one", [put(b"f", first), put(b"g", second)])) == [Outcome.DONE] * 2
    with pytest.raises(OSError, match="space"), (side.folder / "filler").open("wb", buffering=0) as filler:
        while filler.write(b"x" * 4096):
            pass
    assert outcomes(side.send("two", [delete(b"f", file(first))])) == [Outcome.DONE]
    assert side.trashed() == {b"f": first} and outcomes(side.send("three", [put(b"h", second)])) == [Outcome.DONE]
    assert side.trashed() == {} and (side.folder / "h").read_bytes() == second
    assert outcomes(side.send("four", [delete(b"g", file(second))])) == [Outcome.DONE]


def test_a_blob_stops_at_a_full_disk_and_goes_on_when_there_is_room(small_disk: TreeSide) -> None:
    side = small_disk
    content = os.urandom(3 * MIB)
    digest = sha(content)
    writer = side.blobs.open(digest, offset=0, size_bytes=len(content))
    (side.folder / "filler").write_bytes(bytes(2 * MIB))
    with pytest.raises(OSError, match="space"):
        writer.write([content[start : start + 65536] for start in range(0, len(content), 65536)])
    have, is_complete = side.blobs.close(writer)
    assert 0 < have < len(content) and not is_complete
    (side.folder / "filler").unlink()
    writer = side.blobs.open(digest, offset=have, size_bytes=len(content))
    writer.write([content[have:]])
    assert side.blobs.close(writer) == (len(content), True)


def test_a_blob_that_cannot_fit_is_refused_before_it_fills_the_disk(small_disk: TreeSide) -> None:
    side = small_disk
    with pytest.raises(OSError, match="space"):
        side.blobs.open(sha(b"large"), offset=0, size_bytes=5 * MIB)
    assert side.is_stage_empty() and outcomes(side.send("fits", [put(b"f", os.urandom(3 * MIB))])) == [Outcome.DONE]
    # Of what has holes, nobody knows what it takes.
    writer = side.blobs.open(sha(b"sparse"), offset=0, size_bytes=5 * MIB, is_sparse=True)
    assert side.blobs.close(writer) == (0, False)


def test_a_blob_that_nobody_sends_any_more_gives_way_to_what_is_needed(small_disk: TreeSide) -> None:
    side = small_disk
    for name in (b"cut", b"also cut"):
        writer = side.blobs.open(sha(name), offset=0, size_bytes=2 * MIB)
        writer.write([os.urandom(MIB)])
        assert side.blobs.close(writer) == (MIB, False)
    busy = side.blobs.open(sha(b"busy"), offset=0, size_bytes=2 * MIB)
    busy.write([os.urandom(MIB)])
    assert outcomes(side.send("needed", [put(b"f", os.urandom(2 * MIB))])) == [Outcome.DONE]
    assert side.blobs.state(sha(b"cut")) == side.blobs.state(sha(b"also cut")) == (0, False)
    assert side.blobs.close(busy) == (MIB, False)


def test_a_whole_blob_that_nobody_came_for_gives_way_in_time(small_disk: TreeSide) -> None:
    side = small_disk
    content, name = os.urandom(2 * MIB), sha(b"made up")
    writer = side.blobs.open(name, offset=0, size_bytes=len(content), is_provisional=True)
    writer.write([content])
    assert side.blobs.close(writer) == (len(content), True)
    large = [put(b"f", os.urandom(3 * MIB))]
    assert outcomes(side.send("soon", large)) == ["disk_full"]
    for path in Path(side.stage.path, "blobs").iterdir():
        os.utime(path, (0, 0), follow_symlinks=False)
    assert outcomes(side.send("later", large)) == [Outcome.DONE] and side.is_stage_empty()


def test_a_blob_in_two_places_takes_the_room_of_the_trash_and_leaves_no_half_copy(small_disk: TreeSide) -> None:
    side = small_disk
    old, content = os.urandom(MIB), os.urandom(MIB + MIB // 2)
    side.send("old", [put(b"old", old)])
    side.send("gone", [delete(b"old", file(old))])
    digest = sha(content)
    writer = side.blobs.open(digest, offset=0, size_bytes=len(content))
    writer.write([content])
    assert side.blobs.close(writer) == (len(content), True)
    twice = [put_known(b"f", content, Source.BLOB), put_known(b"g", content, Source.BLOB)]
    (side.folder / "filler").write_bytes(bytes(MIB))
    assert outcomes(side.send("full", twice)) == ["disk_full", Outcome.DONE]
    assert (side.folder / "g").read_bytes() == content and side.is_stage_empty() and side.trashed() == {}


def test_a_kernel_that_copies_no_files_is_good_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(os, "copy_file_range", refuse)
    content = os.urandom(2 * MIB)
    with tree_side(tmp_path / "tree") as side:
        writer = side.blobs.open(sha(content), offset=0, size_bytes=len(content))
        writer.write([content])
        side.blobs.close(writer)
        twice = [put_known(b"f", content, Source.BLOB), put_known(b"g", content, Source.BLOB)]
        assert outcomes(side.send("two", twice)) == [Outcome.DONE] * 2
        assert (side.folder / "f").read_bytes() == (side.folder / "g").read_bytes() == content


def test_batches_at_the_same_time_stay_in_their_own_folders(tmp_path: Path) -> None:
    with tree_side(tmp_path / "tree") as side:
        side.send("make", [mkdir(b"d%d" % number) for number in range(4)])
        problems: list[object] = []

        def fill(number: int) -> None:
            for run in range(30):
                steps = [put(b"d%d/%d-%d" % (number, run, file), b"%d" % number) for file in range(5)]
                problems.extend(one for one in outcomes(side.send(f"{number}-{run}", steps)) if one)

        threads = [threading.Thread(target=fill, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert problems == []
        for number in range(4):
            found = list((side.folder / f"d{number}").iterdir())
            assert len(found) == 150 and {path.read_bytes() for path in found} == {b"%d" % number}
