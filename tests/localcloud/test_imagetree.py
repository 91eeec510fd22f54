"""Copies of the guest: named by content, shared, never changed under a running sandbox."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from sbxtui.localcloud import imagetree
from sbxtui.localcloud.imagetree import prune_image_trees
from sbxtui.localcloud.keeper_place import hold_tree


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A guest of one small package that the test may change."""
    folder = tmp_path / "installed" / "sbxguest"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("VERSION = 1\n")
    monkeypatch.setattr(imagetree, "_package_dirs", lambda: {"sbxguest": folder})
    # As another process each time, which is what looks at the installed packages anew.
    monkeypatch.setattr(imagetree, "ensure_image_tree", imagetree._find_or_build)
    return folder


def test_the_same_guest_gives_the_same_tree(packages: Path, tmp_path: Path) -> None:
    first = imagetree.ensure_image_tree(tmp_path / "trees")
    (packages / "__init__.py").touch()
    assert imagetree.ensure_image_tree(tmp_path / "trees") == first


def test_an_upgrade_makes_another_tree_and_keeps_the_old_one(packages: Path, tmp_path: Path) -> None:
    old = imagetree.ensure_image_tree(tmp_path / "trees")
    (packages / "__init__.py").write_text("VERSION = 2, 'two'\n")
    new = imagetree.ensure_image_tree(tmp_path / "trees")
    assert new != old
    assert (old.path / "sbxguest" / "__init__.py").read_text() == "VERSION = 1\n"
    assert (new.path / "sbxguest" / "__init__.py").read_text() == "VERSION = 2, 'two'\n"


def test_everybody_may_read_a_tree_and_nobody_may_write_its_files(packages: Path, tmp_path: Path) -> None:
    tree = imagetree.ensure_image_tree(tmp_path / "trees")
    for path in (tree.path, *tree.path.rglob("*")):
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o755 if path.is_dir() else 0o444), path


def test_a_tree_that_is_held_or_young_is_not_pruned(packages: Path, tmp_path: Path) -> None:
    old = imagetree.ensure_image_tree(tmp_path / "trees")
    assert prune_image_trees(tmp_path / "trees") == []
    descriptor = hold_tree(old.path)
    assert prune_image_trees(tmp_path / "trees", young_s=-1) == []
    os.close(descriptor)
    assert prune_image_trees(tmp_path / "trees", young_s=-1) == [old.path]
    assert imagetree.ensure_image_tree(tmp_path / "trees").path.is_dir()


def test_trees_made_at_the_same_time_are_one(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from sbxtui.localcloud.imagetree import ensure_image_tree; "
        "print(ensure_image_tree(Path(sys.argv[1])).path)"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "trees")]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    printed = {process.communicate()[0] for process in running}
    assert [process.returncode for process in running] == [0, 0, 0]
    assert len(printed) == 1
    assert not list((tmp_path / "trees").glob(".building-*"))


def test_the_real_tree_runs_the_guest_without_anything_installed(tmp_path: Path) -> None:
    tree = imagetree.ensure_image_tree(tmp_path / "trees")
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); "
        "import sbxguest.init, sbxguest.server, uvicorn, httptools, websockets; "
        "print(sbxguest.__file__, uvicorn.__file__)"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-B", "-c", program, str(tree.path)], capture_output=True, text=True, env={}
    )
    assert done.returncode == 0, done.stderr
    assert all(Path(name).is_relative_to(tree.path) for name in done.stdout.split())
