"""Operations on real trees: what they do, what they refuse, and what is kept of what they take away."""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sbxguest.tree import BadRecord, Kind, Op, OpKind, Outcome, Source, State, TreeError, moves
from sbxguest.tree.batch import Batch
from tests.support.tree_side import (
    TreeSide,
    chmod,
    delete,
    file,
    link,
    made_of,
    mkdir,
    outcomes,
    put,
    put_known,
    rmdir,
    sha,
    stream_of,
    tree_side,
)

DONE, MISMATCH = Outcome.DONE, Outcome.MISMATCH
LARGE = os.urandom(300_000)


@pytest.fixture
def side(tmp_path: Path) -> Iterator[TreeSide]:
    with tree_side(tmp_path / "tree") as made:
        yield made
        assert made.is_stage_empty()


def test_a_batch_makes_a_tree_in_order_and_says_what_stands_there(side: TreeSide) -> None:
    results = side.send(
        "one",
        [
            mkdir(b"a"),
            mkdir(b"a/b"),
            put(b"a/b/f", b"content"),
            put(b"a/large", LARGE, is_executable=True),
            put(b"zero", b""),
            link(b"a/link", b"b/f"),
        ],
    )
    assert outcomes(results) == [DONE] * 6
    assert (side.folder / "a/large").read_bytes() == LARGE and (side.folder / "zero").read_bytes() == b""
    assert os.readlink(side.folder / "a/link") == "b/f"
    modes = {name: stat.S_IMODE((side.folder / name).stat().st_mode) for name in ("a", "a/b/f", "a/large")}
    assert modes == {"a": 0o755, "a/b/f": 0o644, "a/large": 0o755}
    for path, result in zip([b"a", b"a/b", b"a/b/f", b"a/large", b"zero", b"a/link"], results, strict=True):
        now = side.state(path)
        assert now is not None and result.state is not None and result.state == now
        assert path == b"a" or result.state.stamp == now.stamp or now.kind is Kind.DIR


def test_what_is_replaced_or_deleted_is_in_the_trash(side: TreeSide) -> None:
    side.send("one", [put(b"f", b"old"), put(b"g", b"gone"), link(b"l", b"f")])
    link_state = side.state(b"l")
    assert link_state is not None
    steps = [put(b"f", b"new", file(b"old")), delete(b"g", file(b"gone")), delete(b"l", link_state)]
    assert outcomes(side.send("two", steps)) == [DONE] * 3
    assert sorted(os.listdir(side.folder)) == ["f"] and (side.folder / "f").read_bytes() == b"new"
    assert side.trashed() == {b"f": b"old", b"g": b"gone"}
    assert [(one.seq, one.entry.path, one.entry.state.kind) for one in side.trash.items("two")] == [
        (0, b"f", Kind.FILE),
        (1, b"g", Kind.FILE),
        (2, b"l", Kind.LINK),
    ]


def test_a_stamp_alone_is_proof_enough_unless_it_is_fresh(side: TreeSide) -> None:
    (side.folder / "f").write_bytes(b"old")
    now = side.state(b"f")
    assert now is not None and now.stamp is not None and now.stamp.is_racy
    settled = State(now.kind, stamp=replace(now.stamp, is_racy=False))
    assert side.apply(*put(b"f", b"new", State(now.kind, stamp=now.stamp))).outcome is MISMATCH
    assert side.apply(*put(b"f", b"new", settled.with_stamp(replace(now.stamp, inode=1)))).outcome is MISMATCH
    assert side.apply(*put(b"f", b"new", settled)).outcome is DONE
    assert (side.folder / "f").read_bytes() == b"new" and side.trashed() == {b"f": b"old"}


def test_an_outdated_stamp_is_made_good_by_the_content(side: TreeSide) -> None:
    (side.folder / "f").write_bytes(b"old")
    now = side.state(b"f")
    assert now is not None
    os.utime(side.folder / "f", ns=(1, 1))
    assert side.apply(*put(b"f", b"new", now)).outcome is DONE


def test_anything_else_than_expected_stays_and_is_told(side: TreeSide) -> None:
    (side.folder / "f").write_bytes(b"theirs")
    (side.folder / "d").mkdir()
    (side.folder / "l").symlink_to("f")
    theirs = file(b"theirs")
    cases = [
        put(b"f", b"mine"),
        put(b"f", b"mine", file(b"old")),
        put(b"f", b"mine", file(b"theirs", is_executable=True)),
        put(b"d", b"mine"),
        put(b"l", b"mine"),
        put(b"l", b"mine", State(Kind.LINK, b"elsewhere")),
        put(b"gone", b"mine", file(b"old")),
        delete(b"f", file(b"old")),
        delete(b"f", State(Kind.LINK, b"x")),
        mkdir(b"f"),
        rmdir(b"f"),
        link(b"f", b"x"),
        chmod(b"f", file(b"old"), is_executable=True),
        chmod(b"gone", file(b"old"), is_executable=True),
    ]
    results = [side.apply(*case) for case in cases]
    assert outcomes(results) == [MISMATCH] * len(cases)
    for case, result in zip(cases, results, strict=True):
        now = side.state(case[0].path)
        assert now == result.state if now is None or result.state is None else now.stamp == result.state.stamp
    assert side.state(b"f") is not None and theirs == side.state(b"f")
    assert side.trashed() == {}


def test_what_stands_there_already_is_done(side: TreeSide) -> None:
    (side.folder / "f").write_bytes(b"same")
    (side.folder / "d").mkdir()
    (side.folder / "l").symlink_to("f")
    steps = [
        put(b"f", b"same", file(b"old")),
        put(b"f", b"same"),
        mkdir(b"d"),
        link(b"l", b"f"),
        delete(b"gone", file(b"old")),
        rmdir(b"gone"),
        put_known(b"f", b"same", Source.BLOB),
        put_known(b"f", b"same", Source.KNOWN),
        chmod(b"f", file(b"same", is_executable=True), is_executable=False),
    ]
    inode = (side.folder / "f").stat().st_ino
    assert outcomes(side.send("one", steps)) == [DONE] * len(steps)
    assert (side.folder / "f").stat().st_ino == inode and side.trashed() == {}


def test_only_the_executable_bit_changes_and_the_other_bits_are_kept(side: TreeSide) -> None:
    (side.folder / "f").write_bytes(b"x")
    (side.folder / "f").chmod(0o640)
    result = side.apply(*chmod(b"f", file(b"x"), is_executable=True))
    assert (result.outcome, result.state) == (DONE, side.state(b"f"))
    assert stat.S_IMODE((side.folder / "f").stat().st_mode) == 0o750
    assert side.apply(*put(b"f", b"y", file(b"x", is_executable=True))).outcome is DONE
    assert stat.S_IMODE((side.folder / "f").stat().st_mode) == 0o640


def test_refusals_of_the_disk_have_words(side: TreeSide) -> None:
    (side.folder / "d").mkdir()
    (side.folder / "d/inside").touch()
    (side.folder / "f").touch()
    (side.folder / "l").symlink_to("d")
    os.mkfifo(side.folder / "fifo")
    folder = State(Kind.DIR)
    cases = {
        "not_empty": rmdir(b"d"),
        "file_not_found": put(b"no/such", b"x"),
        "bad_path": put(b"n" * 256, b"x"),
        "is_a_directory": delete(b"d", folder),
        "special_file": put(b"fifo", b"x"),
        "content_missing": put_known(b"x", b"never seen", Source.BLOB),
        "not_a_directory": put(b"l/new", b"x"),
    }
    assert {code: side.apply(*step).code for code, step in cases.items()} == {code: code for code in cases}
    assert side.apply(*put(b"f/below", b"x")).code == "not_a_directory"
    assert side.apply(*delete(b"fifo", file(b""))).code == "special_file"
    assert side.apply(*put_known(b"x", b"never seen", Source.KNOWN, b"f")).code == "content_missing"
    assert sorted(os.listdir(side.folder)) == ["d", "f", "fifo", "l"]


def test_nothing_is_made_through_a_link(side: TreeSide, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/f").write_bytes(b"precious")
    (side.folder / "way").symlink_to("../outside")
    (side.folder / "alias").symlink_to("../outside/f")
    for step in (
        put(b"way/f", b"x", file(b"precious")),
        put(b"way/new", b"x"),
        mkdir(b"way/d"),
        delete(b"way/f", file(b"precious")),
        chmod(b"alias", file(b"precious"), is_executable=True),
    ):
        assert side.apply(*step).outcome is not DONE
    assert side.apply(*put(b"alias", b"mine", State(Kind.LINK, b"../outside/f"))).outcome is DONE
    assert os.listdir(tmp_path / "outside") == ["f"]
    assert (tmp_path / "outside/f").read_bytes() == b"precious"
    assert not (side.folder / "alias").is_symlink() and (side.folder / "alias").read_bytes() == b"mine"


def test_contents_are_taken_from_where_they_are_known(side: TreeSide) -> None:
    side.send("one", [put(b"old", LARGE), put(b"other", b"other")])
    assert side.apply(*put_known(b"new", LARGE, Source.KNOWN, b"old")).outcome is DONE
    side.send("two", [delete(b"old", file(LARGE)), delete(b"new", file(LARGE))])
    assert side.apply(*put_known(b"back", LARGE, Source.KNOWN)).outcome is DONE
    assert side.apply(*put_known(b"copy", LARGE, Source.KNOWN, b"other")).outcome is DONE
    assert (side.folder / "back").read_bytes() == (side.folder / "copy").read_bytes() == LARGE
    assert side.trashed() == {b"old": LARGE, b"new": LARGE}


def test_a_batch_that_comes_again_is_not_made_again(side: TreeSide) -> None:
    steps = [put(b"f", b"mine"), delete(b"g", file(b"g")), put(b"h", b"h", file(b"no"))]
    (side.folder / "g").write_bytes(b"g")
    first = side.send("same", steps)
    assert outcomes(first) == [DONE, DONE, MISMATCH]
    (side.folder / "f").write_bytes(b"theirs")
    (side.folder / "g").write_bytes(b"g")
    (side.folder / "h").write_bytes(b"no")
    again = side.send("same", steps)
    assert outcomes(again) == [DONE, DONE, DONE] and again[:2] == first[:2]
    assert (side.folder / "f").read_bytes() == b"theirs" and (side.folder / "g").read_bytes() == b"g"


def test_a_cut_batch_does_nothing_and_may_come_again(side: TreeSide) -> None:
    steps = [mkdir(b"d"), put(b"d/large", LARGE), put(b"d/f", b"x")]
    data = stream_of(steps)
    for cut in (0, 10, 200, len(data) // 2, len(data) - 1):
        batch = Batch(side.applier, side.blobs, "cut")
        batch.write([data[:cut]])
        with pytest.raises(BadRecord):
            next(batch.results())
        batch.abort()
        assert os.listdir(side.folder) == [] and side.is_stage_empty()
    assert outcomes(side.send("cut", steps)) == [DONE] * 3


def test_another_batch_under_the_same_id_is_refused(side: TreeSide) -> None:
    side.send("same", [put(b"f", b"x")])
    with pytest.raises(TreeError) as caught:
        side.send("same", [put(b"f", b"y", file(b"x"))])
    assert caught.value.code == "conflict"
    assert (side.folder / "f").read_bytes() == b"x"


def test_a_batch_that_stopped_half_way_goes_on_from_there(side: TreeSide) -> None:
    steps = [put(b"f%d" % number, b"%d" % number) for number in range(200)]
    batch = Batch(side.applier, side.blobs, "half")
    batch.write([stream_of(steps)])
    results, count = batch.results(), 0
    while count < 4:
        count += len(next(results))
    batch.abort()
    assert 4 <= len(os.listdir(side.folder)) < 200
    (side.folder / "f1").write_bytes(b"theirs")
    assert outcomes(side.send("half", steps)) == [DONE] * 200
    assert (side.folder / "f1").read_bytes() == b"theirs" and len(os.listdir(side.folder)) == 200


def test_a_content_that_is_not_what_was_said_fails_alone(side: TreeSide) -> None:
    op, _ = put(b"small", b"said")
    large, _ = put(b"large", LARGE)
    other = bytes(len(LARGE))
    results = side.send("one", [(op, b"sent"), (large, other), put(b"fine", b"x")])
    assert outcomes(results) == ["wrong_content", "wrong_content", DONE]
    assert os.listdir(side.folder) == ["fine"]


def test_streams_that_make_no_sense_are_refused(side: TreeSide) -> None:
    op, content = put(b"f", b"x" * 100)
    good = stream_of([(op, content)])
    large = stream_of([put(b"l", LARGE)])
    huge = Op(OpKind.PUT, b"h", State(Kind.FILE, sha(b"")), None, 2**40)
    for data, kind in (
        (stream_of([(op, content[:-1])]), BadRecord),
        (good + good, BadRecord),
        (good[:-80] + good, BadRecord),
        (large[:1000] + large[-300_000:], BadRecord),
        (b"\xff" * 100, BadRecord),
        (stream_of([(huge, b"")]), TreeError),
    ):
        batch = Batch(side.applier, side.blobs, "odd")
        with pytest.raises(kind):
            batch.write([data])
            made_of(batch)
        batch.abort()
    assert os.listdir(side.folder) == []


def test_a_root_that_was_replaced_gets_nothing(side: TreeSide) -> None:
    side.folder.rename(side.folder.with_name("moved"))
    side.folder.mkdir()
    with pytest.raises(TreeError) as caught:
        side.send("one", [put(b"f", b"x")])
    assert caught.value.code == "root_changed"
    assert os.listdir(side.folder) == os.listdir(side.folder.with_name("moved")) == []


def test_readers_see_the_old_file_or_the_new_and_never_none(side: TreeSide) -> None:
    versions = [bytes([number]) * 50_000 for number in range(20)]
    side.apply(*put(b"f", versions[0]))
    seen: set[bytes] = set()
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            seen.add((side.folder / "f").read_bytes())

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for old, new in itertools.pairwise(versions):
            assert side.apply(*put(b"f", new, file(old))).outcome is DONE
    finally:
        done.set()
        reader.join()
    assert seen <= set(versions) and seen


def test_what_others_write_at_any_moment_is_never_lost(side: TreeSide, tmp_path: Path) -> None:
    """Somebody puts files in place and moves them away while batches replace and delete them: every version is kept."""
    saved = tmp_path / "saved"
    saved.mkdir()
    written: set[bytes] = set()
    done = threading.Event()

    def save() -> None:
        for number in range(400):
            content = b"theirs %d" % number
            (saved / "new").write_bytes(content)
            with contextlib.suppress(FileExistsError):
                os.link(saved / "new", side.folder / "f")
                written.add(content)
            (saved / "new").unlink()
            with contextlib.suppress(FileNotFoundError):
                os.rename(side.folder / "f", saved / str(number))
        done.set()

    saver = threading.Thread(target=save)
    saver.start()
    number = 0
    while not done.is_set():
        content = b"mine %d" % number
        number += 1
        now = side.state(b"f")
        result = side.apply(*(put(b"f", content, now) if number % 3 or now is None else delete(b"f", now)))
        if result.outcome is DONE and number % 3:
            written.add(content)
    saver.join()
    kept = {path.read_bytes() for path in (*side.folder.iterdir(), *saved.iterdir())}
    for batch_id in side.trash.batches():
        for path in (Path(side.stage.path) / "trash" / batch_id).iterdir():
            kept.add(path.read_bytes())
    assert written <= kept, written - kept


@pytest.fixture
def side_without_exchange(side: TreeSide, monkeypatch: pytest.MonkeyPatch) -> TreeSide:
    monkeypatch.setattr(moves, "_renameat2", None)
    return side


def test_without_the_kernels_help_the_results_are_the_same(side_without_exchange: TreeSide) -> None:
    side = side_without_exchange
    test_what_is_replaced_or_deleted_is_in_the_trash(side)
    assert side.apply(*put(b"f", b"x")).outcome is MISMATCH
    assert side.apply(*put(b"f", b"newer", file(b"new"))).outcome is DONE
    assert side.apply(*put(b"n", b"n")).outcome is DONE
    assert side.apply(*link(b"f", b"n", file(b"newer"))).outcome is DONE
    assert side.apply(*put(b"f", b"file again", State(Kind.LINK, b"n"))).outcome is DONE


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written_refuses_with_a_word(side: TreeSide) -> None:
    (side.folder / "d").mkdir(mode=0o500)
    assert side.apply(*put(b"d/f", b"x")).code == "access_denied"


def test_odd_names_are_made_and_removed(side: TreeSide) -> None:
    names = [b"\xff\xfe", b"new\nline", b"`$(x)` '\"", b"  two  spaces ", "😀".encode(), b"-rf", b"n" * 255]
    assert outcomes(side.send("make", [put(name, name) for name in names])) == [DONE] * len(names)
    assert sorted(map(os.fsencode, os.listdir(side.folder))) == sorted(names)
    assert outcomes(side.send("unmake", [delete(name, file(name)) for name in names])) == [DONE] * len(names)
    assert os.listdir(side.folder) == []
