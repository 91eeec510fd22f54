"""Three versions of a text made one, and the version two others began with found, both by git."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from sbxguest.tree.entry import new_digest
from sbxtui.services.sync.git import Git, GitFailed, git_of
from sbxtui.services.sync.model import Path as TreePath

_LOOK_BACK = "50"
# `git merge-file` exits with the number of conflicts up to this, and with more for a failure.
_MOST_CONFLICTS = 127


async def common_version(folder: str, path: TreePath, digest: bytes) -> bytes | None:
    """A content of a path in git's index or last commits that has a digest; None if there is none."""
    git = git_of(folder)
    try:
        for name in [b":./" + path, *await _committed(git, path)]:
            content = await _blob(git, name)
            if content is not None and _has(content, digest):
                return content
    except GitFailed:
        return None
    return None


async def _committed(git: Git, path: TreePath) -> list[bytes]:
    log = await git.run("log", "-n", _LOOK_BACK, "--format=%H", "--", b":(literal)" + path)
    return [commit + b":./" + path for commit in log.split()]


async def _blob(git: Git, name: bytes) -> bytes | None:
    try:
        return await git.run("cat-file", "blob", name)
    except GitFailed:
        return None


def _has(content: bytes, digest: bytes) -> bool:
    found = new_digest()
    found.update(content)
    return found.digest() == digest


async def merged_text(mine: bytes, before: bytes, theirs: bytes) -> tuple[bytes, int]:
    """Both changes of a text in one, and in how many places they collide; then the text is of no use.

    Raises:
        Unsupported: There is no git.
    """
    with tempfile.TemporaryDirectory(prefix="sbx-merge-") as folder:
        names = ("mine", "before", "theirs")
        for name, content in zip(names, (mine, before, theirs), strict=True):
            await asyncio.to_thread(Path(folder, name).write_bytes, content)
        code, text = await git_of(folder).exit_of("merge-file", "--stdout", *names)
    if code > _MOST_CONFLICTS:
        return b"", 1
    return text, code
