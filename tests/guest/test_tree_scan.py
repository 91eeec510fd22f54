"""Listing real trees: what is said of each kind of entry, what is never done, and what others do meanwhile."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sbxguest.tree import Entry, Kind, Note, Record, State, TreeError
from sbxguest.tree.entry import new_digest
from sbxguest.tree.ignore import Rules
from sbxguest.tree.root import Root, born_ns
from sbxguest.tree.scan import ScanOptions, scan

DIGEST = new_digest(b"content").digest()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "tree"
    folder.mkdir()
    return folder


@pytest.fixture
def root(tree: Path) -> Iterator[Root]:
    opened = Root(str(tree))
    yield opened
    opened.close()


def states(records: list[Record]) -> dict[bytes, tuple[Kind, bytes, bool] | str]:
    return {
        one.path: one.code if isinstance(one, Note) else (one.state.kind, one.state.content, one.state.is_executable)
        for one in records
    }


def listed(root: Root, *paths: bytes, options: ScanOptions | None = None) -> dict[bytes, object]:
    return dict(states(list(scan(root, paths or (b"",), options))))


def test_every_kind_of_entry_is_told_in_tree_order(tree: Path, root: Root) -> None:
    (tree / "a/empty").mkdir(parents=True)
    (tree / "a-b").write_bytes(b"content")
    (tree / "a/tool").write_bytes(b"content")
    (tree / "a/tool").chmod(0o755)
    (tree / "a/zero").touch()
    (tree / "a/up").symlink_to("../..")
    records = list(scan(root))
    assert states(records) == {
        b"a": (Kind.DIR, b"", False),
        b"a/empty": (Kind.DIR, b"", False),
        b"a/tool": (Kind.FILE, DIGEST, True),
        b"a/up": (Kind.LINK, b"../..", False),
        b"a/zero": (Kind.FILE, new_digest().digest(), False),
        b"a-b": (Kind.FILE, DIGEST, False),
    }
    assert [one.path for one in records] == sorted((one.path for one in records), key=lambda path: path.split(b"/"))
    tool = next(one for one in records if one.path == b"a/tool")
    found = (tree / "a/tool").stat()
    assert isinstance(tool, Entry) and tool.state.stamp is not None
    assert (tool.state.stamp.size_bytes, tool.state.stamp.inode) == (7, found.st_ino)
    assert (tool.state.stamp.mtime_ns, tool.state.stamp.ctime_ns) == (found.st_mtime_ns, found.st_ctime_ns)


def test_names_are_bytes_whatever_they_hold(tree: Path, root: Root) -> None:
    names = [b"\xff\xfe", b"new\nline", b"`$(x)` '\"", b"  two  spaces ", "ü".encode(), b"u\xcc\x88", "😀".encode()]
    for name in names:
        (tree / os.fsdecode(name)).write_bytes(b"content")
    assert listed(root) == dict.fromkeys(names, (Kind.FILE, DIGEST, False))


def test_links_are_told_and_never_followed(tree: Path, root: Root, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret").write_bytes(b"x")
    targets = {b"loop": b"loop", b"out": b"../outside", b"root": b"/", b"here": b".", b"gone": b"no/where"}
    for name, target in targets.items():
        os.symlink(target, os.fsencode(tree) + b"/" + name)
    assert listed(root) == {name: (Kind.LINK, target, False) for name, target in targets.items()}
    assert listed(root, b"out/secret", b"here/loop") == {}


def test_what_cannot_be_synced_is_named_and_never_opened(tree: Path, root: Root) -> None:
    os.mkfifo(tree / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.getcwd()
        os.chdir(tree)
        listener.bind("socket")
        os.chdir(here)
        (tree / "f").write_bytes(b"content")
        assert listed(root) == {
            b"f": (Kind.FILE, DIGEST, False),
            b"fifo": "special_file",
            b"socket": "special_file",
        }


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_what_may_not_be_read_is_named(tree: Path, root: Root) -> None:
    (tree / "closed").mkdir(mode=0)
    (tree / "secret").write_bytes(b"x")
    (tree / "secret").chmod(0)
    assert listed(root) == {b"closed": "access_denied", b"secret": "access_denied"}
    (tree / "closed").chmod(0o700)


def test_another_file_system_is_named_and_not_entered(root: Root) -> None:
    with_proc = Root("/")
    try:
        assert listed(with_proc, b"proc") == {b"proc": "other_file_system"}
    finally:
        with_proc.close()


def test_paths_are_looked_at_by_themselves_or_with_all_below(tree: Path, root: Root) -> None:
    (tree / "a/b").mkdir(parents=True)
    (tree / "a/b/f").write_bytes(b"content")
    (tree / "c").write_bytes(b"content")
    file, folder = (Kind.FILE, DIGEST, False), (Kind.DIR, b"", False)
    assert listed(root, b"a/b", b"a/b/f", b"c", b"no", b"c/below", b"a/no/f") == {
        b"a/b": folder,
        b"a/b/f": file,
        b"c": file,
    }
    shallow = ScanOptions(is_deep=False)
    assert listed(root, b"a", b"a/b/f", options=shallow) == {b"a": folder, b"a/b/f": file}


def test_ignored_paths_are_named_and_not_entered(tree: Path, root: Root) -> None:
    (tree / "node_modules/deep").mkdir(parents=True)
    (tree / "src/build").mkdir(parents=True)
    (tree / "src/keep").touch()
    (tree / ".git").mkdir()
    rules = Rules().inside(b"", [b"node_modules/\n"])
    texts = {b"src": [b"build\n"]}
    options = ScanOptions(has_digests=False, rules=rules, texts=lambda path, *_: texts.get(path, ()))
    expected = {
        b".git": "ignored",
        b"node_modules": "ignored",
        b"src": (Kind.DIR, b"", False),
        b"src/build": "ignored",
        b"src/keep": (Kind.FILE, b"", False),
    }
    assert listed(root, options=options) == expected
    assert listed(root, b"src/build/x", b"node_modules/deep", options=options) == {
        b"node_modules": "ignored",
        b"src/build": "ignored",
    }


def test_a_known_content_is_taken_from_before_only_if_the_stamp_proves_it(tree: Path, root: Root) -> None:
    (tree / "f").write_bytes(b"content")
    [entry] = scan(root)
    assert isinstance(entry, Entry) and entry.state.stamp is not None and entry.state.stamp.is_racy
    told = State(Kind.FILE, b"told", stamp=entry.state.stamp)
    old = told.with_stamp(replace(entry.state.stamp, is_racy=False))
    other = old.with_stamp(replace(entry.state.stamp, is_racy=False, ctime_ns=1))
    for known, content in ((told, DIGEST), (old, b"told"), (other, DIGEST)):
        assert listed(root, options=ScanOptions(known={b"f": known})) == {b"f": (Kind.FILE, content, False)}


def test_what_is_as_it_was_is_only_met_where_that_is_enough(tree: Path, root: Root) -> None:
    for name in ("d/same", "d/other", "gone"):
        (tree / name).parent.mkdir(exist_ok=True)
        (tree / name).write_bytes(b"content")
    settled: dict[bytes, State] = {}
    for entry in scan(root):
        assert isinstance(entry, Entry) and entry.state.stamp is not None
        settled[entry.path] = entry.state.with_stamp(replace(entry.state.stamp, is_racy=False))
    (tree / "gone").unlink()
    (tree / "d" / "other").write_bytes(b"longer content")
    unmet = dict(settled)
    records = list(scan(root, options=ScanOptions(known=settled, unmet=unmet)))
    assert [one.path for one in records] == [b"d", b"d/other"]
    assert unmet == {b"gone": settled[b"gone"]}


def test_times_no_record_holds_are_told_as_the_last_there_is(tree: Path, root: Root) -> None:
    (tree / "f").write_bytes(b"content")
    os.utime(tree / "f", (0, 14 * 10**9))
    [entry] = scan(root)
    assert isinstance(entry, Entry) and entry.state.content == DIGEST


def test_our_own_temporary_files_are_not_seen(tree: Path, root: Root) -> None:
    (tree / ".sbx-put-0123").touch()
    (tree / ".sbx-stage-work").mkdir()
    assert listed(root) == {}


def test_a_very_deep_tree_is_listed_with_few_open_folders(tree: Path, root: Root) -> None:
    depth = 1_000
    fd = os.open(tree, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=fd)
        inner = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(os.open("f", os.O_CREAT | os.O_WRONLY, dir_fd=inner))
        os.close(fd)
        fd = inner
    os.close(fd)
    most_open = 0

    def count() -> None:
        nonlocal most_open
        most_open = max(most_open, len(os.listdir("/proc/self/fd")))

    before = len(os.listdir("/proc/self/fd"))
    records = list(scan(root, options=ScanOptions(has_digests=False, check=count)))
    # Too deep for what pytest cleans up with.
    subprocess.run(["rm", "-rf", str(tree / "d")], check=True, timeout=60)
    assert len(records) == 2 * depth and all(isinstance(one, Entry) for one in records)
    assert most_open < before + 100


def test_a_name_too_long_for_the_wire_makes_its_folder_one_nobody_can_tell_about(tree: Path, root: Root) -> None:
    fd = os.open(tree, os.O_RDONLY)
    for _ in range(17):
        os.mkdir("d" * 250, dir_fd=fd)
        inner = os.open("d" * 250, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = inner
    os.close(fd)
    notes = [one for one in scan(root) if isinstance(one, Note)]
    subprocess.run(["rm", "-rf", str(tree / ("d" * 250))], check=True, timeout=60)
    assert [(len(note.path), note.code) for note in notes] == [(251 * 16 - 1, "bad_path")]


def test_a_root_that_is_taken_away_meanwhile_ends_the_listing_in_an_error(tree: Path, root: Root) -> None:
    (tree / "f").touch()
    records = scan(root)
    assert next(records).path == b"f"
    tree.rename(tree.with_name("moved"))
    tree.mkdir()
    with pytest.raises(TreeError) as caught:
        list(records)
    assert caught.value.code == "root_changed"


def test_what_is_no_folder_is_no_root(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for name in ("file", "nothing"):
        with pytest.raises(TreeError):
            Root(str(tmp_path / name))
    (tmp_path / "link").symlink_to(".")
    through_link = Root(str(tmp_path / "link"))
    assert through_link.path == str(tmp_path.resolve()) and through_link.is_in_place
    through_link.close()


def test_entries_that_go_while_they_are_looked_at_are_named(tree: Path, root: Root) -> None:
    for name in "abc":
        (tree / name).mkdir()
        (tree / name / "f").touch()
    records = scan(root)
    assert next(records).path == b"a"
    (tree / "a/f").unlink()
    (tree / "b/f").unlink()
    (tree / "b").rmdir()
    assert dict(states(list(records))) == {
        b"a/f": "vanished",
        b"b": "vanished",
        b"c": (Kind.DIR, b"", False),
        b"c/f": (Kind.FILE, new_digest().digest(), False),
    }


def test_a_file_that_never_keeps_still_is_unstable_and_the_rest_is_listed(tree: Path, root: Root) -> None:
    (tree / "log").write_bytes(b"x")
    (tree / "quiet").write_bytes(b"content")

    def append() -> None:
        with (tree / "log").open("ab") as file:
            file.write(b"x" * 10)

    assert listed(root, options=ScanOptions(check=append)) == {
        b"log": "unstable",
        b"quiet": (Kind.FILE, DIGEST, False),
    }


def test_folders_swapped_for_links_meanwhile_lead_nowhere(tree: Path, root: Root, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret").write_bytes(b"x")
    (tree / "d").mkdir()
    (tree / "e").symlink_to("../outside")
    done = threading.Event()

    def swap() -> None:
        while not done.is_set():
            (tree / "d").rename(tree / "x")
            (tree / "e").rename(tree / "d")
            (tree / "d").rename(tree / "e")
            (tree / "x").rename(tree / "d")

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        for _ in range(300):
            assert not any(path.endswith(b"secret") for path in listed(root, b"", b"d/secret"))
    finally:
        done.set()
        swapper.join()


def test_a_state_is_the_same_whatever_its_stamp(root: Root, tree: Path) -> None:
    (tree / "f").write_bytes(b"content")
    [entry] = scan(root)
    assert isinstance(entry, Entry)
    assert entry.state == State(Kind.FILE, DIGEST) != State(Kind.FILE, DIGEST, True)


def test_a_folder_made_anew_is_another_one_even_with_the_same_inode(tree: Path) -> None:
    if not born_ns(str(tree)):
        pytest.skip("this file system does not tell when a folder was made")
    identities = set()
    for _ in range(20):
        root = Root(str(tree))
        identities.add(root.identity)
        tree.rmdir()
        tree.mkdir()
        assert not root.is_in_place
        root.close()
    assert len(identities) == 20
