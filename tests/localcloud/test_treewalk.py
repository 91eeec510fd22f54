"""Counting and opening folders that somebody hostile has filled."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import sbxtui
from sbxtui.localcloud.keeper_place import remove_trees
from sbxtui.localcloud.treewalk import open_up, usage_of
from tests.support.guest_process import python_for_everyone

SIZE = 1 << 20


def _fill(path: Path) -> None:
    path.write_bytes(os.urandom(SIZE))


def _make_deep(folder: Path, depth: int, name: str) -> None:
    """Folders in folders, with a file at the end that no path can name."""
    fd = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=fd)
        below = os.open(name, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    end = os.open("end", os.O_WRONLY | os.O_CREAT, dir_fd=fd)
    os.write(end, os.urandom(SIZE))
    os.close(end)
    os.close(fd)


@pytest.mark.parametrize(("depth", "name"), [(20, "d" * 250), (3000, "d")])
def test_what_lies_deeper_than_any_path_reaches_is_counted_and_removed(tmp_path: Path, depth: int, name: str) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    _make_deep(tree, depth, name)
    usage = usage_of(tree)
    assert usage.is_whole
    assert usage.size_bytes >= SIZE
    remove_trees([tree])
    assert not tree.exists()


def test_a_small_folder_goes_with_its_links_and_nothing_behind_them(tmp_path: Path) -> None:
    small, mixed, kept = tmp_path / "small", tmp_path / "mixed", tmp_path / "kept"
    for folder in (small, mixed, mixed / "below", kept):
        folder.mkdir()
    _fill(kept / "file")
    _fill(small / "file")
    _fill(mixed / "below" / "file")
    for link in (small / "link", mixed / "link", tmp_path / "named"):
        link.symlink_to(kept)
    os.mkfifo(small / "pipe")
    remove_trees([small, mixed, tmp_path / "named", tmp_path / "missing"])
    assert {path.name for path in tmp_path.iterdir()} == {"kept"}
    assert (kept / "file").stat().st_size == SIZE


def test_a_file_with_two_names_counts_once_and_a_link_is_not_followed(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    _fill(outside / "big")
    _fill(inside / "one")
    (inside / "two").hardlink_to(inside / "one")
    (inside / "folder").symlink_to(outside)
    assert SIZE <= usage_of(inside).size_bytes < 2 * SIZE
    assert usage_of(inside / "folder").size_bytes == 0
    assert usage_of(tmp_path / "nothing").is_whole


CLOSED = """
import os, sys
from pathlib import Path
from sbxtui.localcloud.treewalk import usage_of
root = Path(sys.argv[1])
for folder, mode in ((root / "shut" / "a", 0), (root / "unsearchable", 0o400)):
    folder.mkdir(parents=True)
    (folder / "big").write_bytes(os.urandom(1 << 20))
    folder.chmod(mode)
(root / "shut").chmod(0)
usage = usage_of(root)
assert usage.is_whole and usage.size_bytes >= 2 << 20, usage
modes = [(root / "shut").stat().st_mode & 0o777, (root / "unsearchable").stat().st_mode & 0o777]
assert modes == [0, 0o400], modes
"""


def test_a_folder_closed_to_its_owner_hides_nothing_and_stays_closed(tmp_path: Path) -> None:
    _as_plain_user(CLOSED, tmp_path)


REMOVED = """
import os, sys
from pathlib import Path
from sbxtui.localcloud.keeper_place import remove_trees
root = Path(sys.argv[1])
(root / "outside").mkdir(mode=0o500)
(root / "tree" / "shut" / "deep").mkdir(parents=True)
(root / "tree" / "shut" / "deep" / "file").touch()
(root / "tree" / "shut" / "link").symlink_to(root / "outside")
for name in ("tree/shut/deep", "tree/shut", "tree"):
    (root / name).chmod(0)
(root / "named").symlink_to(root / "outside")
remove_trees([root / "tree", root / "named"])
assert [path.name for path in root.iterdir()] == ["outside"]
assert (root / "outside").stat().st_mode & 0o777 == 0o500
"""


def test_closed_folders_are_removed_and_what_links_name_keeps_its_mode(tmp_path: Path) -> None:
    _as_plain_user(REMOVED, tmp_path)


def test_opening_up_changes_no_mode_behind_a_link(tmp_path: Path) -> None:
    outside, tree = tmp_path / "outside", tmp_path / "tree"
    outside.mkdir()
    tree.mkdir()
    (tree / "link").symlink_to(outside)
    (tmp_path / "named").symlink_to(outside)
    outside.chmod(0o500)
    tree.chmod(0o500)
    open_up(tree)
    open_up(tmp_path / "named")
    assert stat.S_IMODE(outside.stat().st_mode) == 0o500
    assert stat.S_IMODE(tree.stat().st_mode) == 0o700


def _as_plain_user(script: str, folder: Path) -> None:
    """Root may read what is closed, so as root the script runs as nobody."""
    python = python_for_everyone()
    if python is None:
        pytest.skip("no interpreter here that every user may run")
    place = folder / "place"
    place.mkdir()
    places = [str(Path(sbxtui.__file__).parent.parent), *filter(None, sys.path)]
    setup = f"import os, sys; sys.path[:0] = {places!r}; sys.argv = ['-', {str(place)!r}]; os.chdir('/')\n"
    # Imported with root's rights: the checkout may lie where nobody may look.
    setup += "import sbxtui.localcloud.keeper_place\n"
    if os.geteuid() == 0:
        os.chown(place, 65534, 65534)
        for parent in place.parents:
            if parent.stat().st_uid == 0 and not parent.stat().st_mode & 0o001 and parent.is_relative_to("/tmp"):
                parent.chmod(parent.stat().st_mode | 0o011)
        setup += "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
    ran = subprocess.run([python, "-I", "-c", setup + script], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
