"""Noticing changes of real folders: what each way of watching tells, what it loses, and that it says so."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from sbxguest import feedlog
from sbxguest.fanotify import Fanotify
from sbxguest.feed import Feed, KernelFeed, ScanFeed, Source
from sbxguest.feedlog import DirtyLog
from sbxguest.opentree import LeftOut, OpenTree, OwnWrites
from sbxguest.state import GuestSettings
from sbxguest.tree import TreeError
from sbxguest.tree.inotify import Inotify
from sbxguest.tree.root import Root
from sbxguest.tree.scan import ScanOptions, scan
from tests.support.tree_side import put


def no_texts(*_folder: object) -> tuple[bytes, ...]:
    return ()


def source_of(kind: str, root: Root) -> Source:
    if kind == "inotify":
        return Inotify(root, no_texts)
    try:
        return Fanotify(root)
    except OSError as exc:
        pytest.skip(f"this process may not watch a file system: {exc}")


@pytest.fixture(params=["fanotify", "inotify"])
async def feed(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Feed]:
    (tmp_path / "tree/before").mkdir(parents=True)
    root = Root(str(tmp_path / "tree"))
    opened = KernelFeed(source_of(request.param, root), lambda path: True, lambda path: True)
    yield opened
    opened.close()
    await opened.cursor()
    root.close()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return tmp_path / "tree"


async def told(feed: Feed, cursor: str) -> set[bytes]:
    """Every path below which something changed, and every path above one."""
    await feed.cursor()
    found = await feed.changes(cursor, 0)
    assert not found.must_rescan
    return set(found.paths)


def is_covered(path: Path, tree: Path, paths: set[bytes]) -> bool:
    """Whether a look at the paths that were told, and at all below them, finds this one."""
    name = os.fsencode(path.relative_to(tree))
    return any(name == one or name.startswith(one + b"/") for one in paths)


async def test_every_way_of_changing_a_file_is_told(feed: Feed, tree: Path) -> None:
    for name in ("edited", "longer", "gone", "moved", "mode", "over"):
        (tree / name).write_bytes(b"x")
    cursor = await feed.cursor()
    (tree / "edited").write_bytes(b"y")
    with (tree / "longer").open("ab", buffering=0) as still_open:
        still_open.write(b"x")
        (tree / "gone").unlink()
        (tree / "moved").rename(tree / "to")
        (tree / "mode").chmod(0o755)
        (tree / "new").symlink_to("edited")
        (tree / "over.tmp").write_bytes(b"z")
        (tree / "over.tmp").rename(tree / "over")
        os.mkfifo(tree / "fifo")
        (tree / os.fsdecode(b"\xff\n")).touch()
        names = {b"edited", b"longer", b"gone", b"moved", b"to", b"mode", b"new", b"over", b"fifo", b"\xff\n"}
        assert names <= await told(feed, cursor)


async def test_what_comes_out_of_a_quiet_folder_is_told_as_ever(tree: Path, tmp_path: Path) -> None:
    waiting = tmp_path / "waiting"
    tree.mkdir()
    waiting.mkdir()
    root = Root(str(tree))
    fd = os.open(waiting, os.O_RDONLY | os.O_DIRECTORY)
    try:
        source = Fanotify(root, (fd,))
    except OSError as exc:
        pytest.skip(f"this process may not watch a file system: {exc}")
    finally:
        os.close(fd)
    try:
        for number in range(3):
            (waiting / f"{number}").write_bytes(b"x")
            (waiting / f"{number}").rename(tree / f"{number}")
            (tree / f"{number}").write_bytes(b"y")
        os.link(tree / "0", waiting / "0")
        (waiting / "0").write_bytes(b"z")
        (tree / "1").unlink()
        assert {b"0", b"1", b"2"} <= set(source.read())
    finally:
        source.close()
        root.close()


async def test_what_is_made_in_folders_that_are_new_is_found(feed: Feed, tree: Path) -> None:
    for run in range(5):
        cursor = await feed.cursor()
        base = tree / f"run{run}"
        for number in range(40):
            (base / f"{number}/b/c/d").mkdir(parents=True)
            (base / f"{number}/b/c/d/f").write_bytes(b"x")
        paths = await told(feed, cursor)
        assert all(is_covered(base / f"{number}/b/c/d/f", tree, paths) for number in range(40))


async def test_an_unpacked_archive_is_found_whole(feed: Feed, tree: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    for number in range(60):
        (source / f"d{number}/e").mkdir(parents=True)
        for name in range(10):
            (source / f"d{number}/e/{name}").touch()
    subprocess.run(["tar", "-cf", str(tmp_path / "t.tar"), "-C", str(source), "."], check=True, timeout=60)
    cursor = await feed.cursor()
    subprocess.run(["tar", "-xf", str(tmp_path / "t.tar"), "-C", str(tree)], check=True, timeout=60)
    paths = await told(feed, cursor)
    missing = [one for one in source.rglob("*") if not is_covered(tree / one.relative_to(source), tree, paths)]
    assert missing == []


async def test_edits_in_a_folder_that_was_moved_have_its_new_name(feed: Feed, tree: Path, tmp_path: Path) -> None:
    (tree / "before/inner").mkdir()
    (tree / "before/inner/f").touch()
    cursor = await feed.cursor()
    (tree / "before").rename(tree / "between")
    (tree / "between").rename(tree / "after")
    cursor_after = await feed.cursor()
    assert {b"before", b"after"} <= await told(feed, cursor)
    (tree / "after/inner/f").write_bytes(b"edited")
    assert await told(feed, cursor_after) == {b"after/inner/f"}
    (tmp_path / "from outside/deep").mkdir(parents=True)
    (tmp_path / "from outside").rename(tree / "came")
    cursor = await feed.cursor()
    (tree / "came/deep/f").touch()
    assert await told(feed, cursor) == {b"came/deep/f"}
    (tree / "came").rename(tmp_path / "went")
    cursor = await feed.cursor()
    (tmp_path / "went/deep/g").touch()
    assert await told(feed, cursor) == set()


async def test_who_waits_is_woken_by_the_next_change_and_not_before(feed: Feed, tree: Path) -> None:
    cursor = await feed.cursor()
    waiting = asyncio.create_task(feed.changes(cursor, 60))
    await feed.cursor()
    assert not waiting.done()
    (tree / "f").touch()
    async with asyncio.timeout(30):
        assert (await waiting).paths == (b"f",)
    async with asyncio.timeout(30):
        assert (await feed.changes(await feed.cursor(), 0.05)).paths == ()


async def test_a_feed_that_is_closed_lets_everybody_go(feed: Feed) -> None:
    cursor = await feed.cursor()
    waiting = asyncio.create_task(feed.changes(cursor, 60))
    await feed.cursor()
    feed.close()
    async with asyncio.timeout(30):
        await waiting
        await feed.cursor()


@pytest.mark.parametrize("failure", [OSError(28, "no room"), TreeError("root_changed", "gone"), ValueError("a bug")])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_whatever_ends_a_feed_lets_everybody_go_and_says_that_all_may_have_changed(
    tree: Path, failure: Exception
) -> None:
    tree.mkdir()

    class Ending(Inotify):
        def read(self) -> Iterator[bytes | None]:
            for path in super().read():
                yield path
                raise failure

    with contextlib.closing(Root(str(tree))) as root:
        feed = KernelFeed(Ending(root, no_texts), lambda path: True, lambda path: True)
        cursor = await feed.cursor()

        async def until_all_may_have_changed() -> None:
            # The folder itself may be told before what ends the feed.
            while not (await feed.changes(cursor, 60)).must_rescan:
                await asyncio.sleep(0)

        waiting = [asyncio.create_task(until_all_may_have_changed()) for _ in range(3)]
        (tree / "new").mkdir()
        async with asyncio.timeout(30):
            await asyncio.gather(*waiting)
            await feed.cursor()
            assert (await feed.changes(cursor, 60)).must_rescan
        assert feed.is_broken
        feed.close()


def test_links_swapped_for_folders_put_no_watch_outside(tree: Path, tmp_path: Path) -> None:
    (tree / "in").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (tree / "link").symlink_to("../outside")

    def swap(folder: bytes, *_rest: object) -> tuple[bytes, ...]:
        if not folder:
            (tree / "swapped").symlink_to("../outside")
        return ()

    with contextlib.closing(Root(str(tree))) as root, contextlib.closing(Inotify(root, swap)) as source:
        (tmp_path / "outside/f").touch()
        (tree / "in/f").touch()
        assert set(source.read()) == {b"swapped", b"in/f"}


def test_what_rules_leave_out_is_not_watched_until_they_change_and_the_root_tells_when_it_goes(tree: Path) -> None:
    for name in ("build/in", "src/build"):
        (tree / name).mkdir(parents=True)
    texts = [b"build/\n*.log\n"]
    with contextlib.closing(Root(str(tree))) as root:
        source = Inotify(root, lambda folder, _fd, _names: () if folder else texts)
        with contextlib.closing(source):
            for name in ("build/f", "build/in/f", "src/build/f", "src/a.log", "src/f"):
                (tree / name).touch()
            assert set(source.read()) == {b"src/f"}
            texts[:] = [b"src/\n"]
            source.refresh()
            for name in ("build/in/f", "src/f", "a.log"):
                (tree / name).write_text("x")
            assert set(source.read()) == {b"build/in/f", b"a.log"}
            assert not source.has_root_gone
            tree.rename(tree.with_name("moved"))
            assert b"" in set(source.read()) and source.has_root_gone


def test_a_file_that_its_writer_has_closed_is_told_from_one_that_is_being_written(tree: Path) -> None:
    tree.mkdir()
    with contextlib.closing(Root(str(tree))) as root, contextlib.closing(Inotify(root, no_texts)) as source:
        (tree / "saved").write_bytes(b"x")
        with (tree / "open").open("wb", buffering=0) as file:
            file.write(b"x")
            assert set(source.read()) == {b"saved", b"open"} and source.ended == {b"saved"}
        assert set(source.read()) == {b"open"} and source.ended == {b"open"}
        with (tree / "saved").open("ab", buffering=0) as file:
            file.write(b"x")
        (tree / "saved").chmod(0o600)
        assert set(source.read()) == {b"saved"} and source.ended == set()


def test_more_notes_than_the_kernel_keeps_are_said_to_be_lost(tree: Path) -> None:
    tree.mkdir()
    kept = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    if kept > 50_000:
        pytest.skip(f"this kernel keeps {kept} notes")
    with contextlib.closing(Root(str(tree))) as root, contextlib.closing(Inotify(root, no_texts)) as source:
        for number in range(kept + 1):
            # Two by turns: the kernel keeps only one of several equal notes behind each other.
            (tree / f"f{number % 2}").touch()
        assert None in set(source.read())


async def test_looking_again_notices_that_something_changed(tree: Path) -> None:
    tree.mkdir()
    (tree / "f").write_bytes(b"x")
    root = Root(str(tree))
    feed = ScanFeed(lambda: scan(root, options=ScanOptions(has_digests=False)))
    cursor = await feed.cursor()
    assert not (await feed.changes(cursor, 0)).must_rescan
    (tree / "f").write_bytes(b"y")
    changed = await feed.changes(cursor, 30)
    assert changed.must_rescan and changed.cursor == await feed.cursor() != cursor
    root.close()


def test_a_log_that_is_full_forgets_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feedlog, "MAX_PATHS", 3)
    log = DirtyLog(lambda: None)
    start = log.cursor
    for name in (b"a", b"b", b"a"):
        log.add(name)
    assert log.since(start).paths == (b"b", b"a")
    middle = log.cursor
    log.add(b"c")
    assert log.since(middle).paths == (b"c",)
    log.add(b"d")
    assert log.since(start).must_rescan and log.since(middle).must_rescan
    now = log.cursor
    assert log.since(now) == feedlog.Dirty(now, ())
    log.lose()
    assert log.since(now).must_rescan


def test_what_rules_leave_out_is_left_out_below_too() -> None:
    left_out = LeftOut({b"": (b"build/\n*.pyc\n",), b"keep": (b"!*.pyc\n",)})
    out = {b"build/x", b"build/a/b", b"a/b.pyc", b".git/index", b"a/.git/x", b"x.pyc"}
    kept = {b"a", b"a/b", b"build.txt", b"keep/x.pyc", b"keep/a/x.pyc"}
    assert {path for path in out | kept if left_out.holds(path)} == out


def test_a_tree_knows_its_own_writes_from_those_of_others(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    tree = OpenTree(str(tmp_path / "tree"), GuestSettings("boot", workdir=str(tmp_path / "tree")))
    op, _ = put(b"f", b"")
    content = tree.stage.new_name()
    os.close(os.open(content, os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=tree.stage.incoming_fd))
    tree.own_writes.note(b"f", tree.applier.apply("one", 0, op, content).state)
    assert not tree.is_news(b"f")
    (tmp_path / "tree/f").write_bytes(b"edited")
    assert tree.is_news(b"f") and tree.is_news(b"f")
    tree.own_writes.note(b"gone", None)
    assert not tree.is_news(b"gone") and tree.is_news(b"never seen")
    (tmp_path / "tree/gone").touch()
    assert tree.is_news(b"gone")
    assert not tree.wants(b".sbx-stage-0/incoming/x") and not tree.wants(b"a/.sbx-put-0") and tree.wants(b"a/b")


def test_memory_of_own_writes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sbxguest.opentree._MAX_OWN", 2)
    own = OwnWrites()
    for name in (b"a", b"b", b"c"):
        own.note(name, None)
    assert [own.is_still_there(name, None) for name in (b"a", b"b", b"c")] == [False, True, True]
