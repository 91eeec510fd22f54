"""What the sandbox changed, beside the folder: as a commit on a branch, and as a patch git takes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from sbxtui.core.errors import Conflict, Unsupported, UsageError
from sbxtui.services.sync.branch import commit_on_branch
from sbxtui.services.sync.compare import whole_patch_of
from sbxtui.services.sync.review import review
from tests.services.sync.pairs import TwoFolders, two_folders

ODD = 'odd "name"\tand\nä'


def git(folder: Path, *words: str) -> str:
    ours = ("git", "-C", os.fspath(folder), "-c", "user.name=n", "-c", "user.email=e")
    return subprocess.run([*ours, *words], check=True, capture_output=True, text=True, timeout=60).stdout


async def changed_in_the_sandbox(two: TwoFolders) -> None:
    """A folder with a first commit and an edit that is not committed, and much that the sandbox changed since."""
    (two.here / "d").mkdir()
    for name in ("edited", "deleted", "kept", "d/f", "flipped", "program"):
        (two.here / name).write_text(f"base {name}\n")
    (two.here / "binary").write_bytes(b"\0old" * 50)
    git(two.here, "init", "-q")
    git(two.here, "add", ".")
    git(two.here, "commit", "-qm", "first")
    (two.here / "kept").write_text("not committed\n")
    await two.cycle.compare()
    (two.there / "edited").write_text("theirs")
    (two.there / "deleted").unlink()
    (two.there / "program").chmod(0o755)
    (two.there / "binary").write_bytes(bytes(range(256)) * 4)
    (two.there / "new-binary").write_bytes(b"\0\1\2")
    (two.there / "flipped").unlink()
    (two.there / "flipped").mkdir()
    (two.there / "flipped" / ODD).write_text("odd\n")
    (two.there / "link").symlink_to("kept")
    (two.there / "d" / "f").unlink()
    (two.there / "d").rmdir()


async def test_a_branch_has_what_the_sandbox_changed_and_the_folder_is_as_it_was(tmp_path: Path) -> None:
    with two_folders(tmp_path) as two:
        await changed_in_the_sandbox(two)
        before = git(two.here, "status", "--porcelain"), git(two.here, "rev-parse", "HEAD")
        reviewed = await review(two.pair)
        commit = await commit_on_branch(two.pair, reviewed.changes, "agent/work", author="app")
        assert (git(two.here, "status", "--porcelain"), git(two.here, "rev-parse", "HEAD")) == before
        assert git(two.here, "log", "--format=%H %an %P", "-1", "agent/work").split() == [
            commit,
            "app",
            before[1].strip(),
        ]
        git(two.here, "worktree", "add", "-q", os.fspath(tmp_path / "out"), "agent/work")
        out = tmp_path / "out"
        assert (out / "edited").read_text() == "theirs" and (out / "kept").read_text() == "base kept\n"
        assert (out / "binary").read_bytes() == bytes(range(256)) * 4
        assert (out / "flipped" / ODD).read_text() == "odd\n" and os.readlink(out / "link") == "kept"
        assert (out / "program").stat().st_mode & 0o111
        assert not (out / "deleted").exists() and not (out / "d").exists()
        with pytest.raises(Conflict, match="already"):
            await commit_on_branch(two.pair, reviewed.changes, "agent/work", author="app")
        with pytest.raises(UsageError):
            await commit_on_branch(two.pair, reviewed.changes, "-no..name", author="app")


async def test_a_folder_inside_a_repository_without_a_commit_gets_a_branch_too(tmp_path: Path) -> None:
    (tmp_path / "h" / "here").mkdir(parents=True)
    git(tmp_path / "h", "init", "-q")
    with two_folders(tmp_path) as two:
        (two.there / "new").write_text("n\n")
        reviewed = await review(two.pair)
        await commit_on_branch(two.pair, reviewed.changes, "work", author="app")
        assert git(two.here, "show", "work:here/new") == "n\n"


async def test_a_folder_in_no_repository_has_no_branches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", os.fspath(tmp_path))
    with two_folders(tmp_path) as two, pytest.raises(Unsupported, match="no git repository"):
        await commit_on_branch(two.pair, (), "work", author="app")


async def test_a_patch_that_is_kept_makes_the_same_of_the_first_commit(tmp_path: Path) -> None:
    with two_folders(tmp_path) as two:
        await changed_in_the_sandbox(two)
        reviewed = await review(two.pair)
        lines = [line for change in reviewed.changes for line in await whole_patch_of(two.pair, change)]
        patch = "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape")
        git(two.here, "worktree", "add", "-q", os.fspath(tmp_path / "out"), "HEAD")
        out = tmp_path / "out"
        subprocess.run(["git", "-C", out, "apply", "-"], input=patch, check=True, timeout=60)
        assert (out / "binary").read_bytes() == bytes(range(256)) * 4
        assert (out / "new-binary").read_bytes() == b"\0\1\2"
        assert (out / "flipped" / ODD).read_text() == "odd\n" and os.readlink(out / "link") == "kept"
        assert not (out / "deleted").exists() and (out / "program").stat().st_mode & 0o111
        subprocess.run(["git", "-C", out, "apply", "-R", "-"], input=patch, check=True, timeout=60)
        assert git(out, "status", "--porcelain") == ""
