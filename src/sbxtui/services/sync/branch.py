"""What the sandbox changed as a commit on a new branch: no file of the folder and no index of git is touched."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path as FilePath

from sbxguest.tree import Outcome, Result
from sbxguest.tree.entry import new_digest
from sbxtui.core.errors import Conflict, Unsupported, UsageError
from sbxtui.core.text import harmless_line
from sbxtui.guest.tree import GuestTree, Wanted
from sbxtui.services.sync.git import Git, GitFailed, git_of
from sbxtui.services.sync.model import Change, Kind, Op, Path, State
from sbxtui.services.sync.pair import Pair

_PROGRAM, _FILE, _LINK = b"100755", b"100644", b"120000"
_NO_CHANGE_OF_FILES = (Op.MKDIR, Op.RMDIR)


async def commit_on_branch(pair: Pair, changes: Sequence[Change], branch: str, *, author: str) -> str:
    """Commit changes of the sandbox on top of what the folder's repository has checked out; returns the commit's id.

    Args:
        pair: The two folders.
        changes: What the sandbox changed, as a review found it.
        branch: A name that is free.
        author: Who the commit says made it.

    Raises:
        UsageError: It is no name for a branch. Conflict: There is such a branch, or a file changed meanwhile.
        Unsupported: There is no git, or the folder is in no repository.
    """
    git = git_of(pair.folder.root.path)
    prefix = await _prefix(git)
    if (await git.exit_of("check-ref-format", "--branch", branch))[0]:
        raise UsageError(f"`{harmless_line(branch)}` is no name for a branch", hint="take letters, digits, `-` and `/`")
    reference = f"refs/heads/{branch}"
    if not (await git.exit_of("show-ref", "--verify", "--quiet", reference))[0]:
        raise Conflict(f"there is a branch `{branch}` already", hint="name another, or remove it: git branch -D")
    with tempfile.TemporaryDirectory(prefix="sbx-branch-") as name:
        folder = FilePath(name)
        apart = replace(git, variables={"GIT_INDEX_FILE": str(folder / "index"), **_identity(author)})
        parent = await _head(git)
        await apart.run("read-tree", parent or "--empty")
        nothing = b"0" * len((await git.run("hash-object", "-t", "tree", "--stdin")).strip())
        lines = [
            await _index_line(apart, pair.guest, change, prefix, nothing, folder / "content")
            for change in changes
            if change.op not in _NO_CHANGE_OF_FILES
        ]
        await apart.run("update-index", "-z", "--index-info", stdin=b"".join(lines))
        tree = (await apart.run("write-tree")).strip()
        parents: list[str | bytes] = ["-p", parent] if parent else []
        message = f"What `{author}` changed"
        commit = (await apart.run("commit-tree", tree, *parents, "-m", message)).strip()
        await git.run("update-ref", reference, commit, nothing)
    return commit.decode()


async def _prefix(git: Git) -> bytes:
    """Where the folder is in its repository, with a slash at its end; empty for the whole of it."""
    try:
        return (await git.run("rev-parse", "--show-prefix")).removesuffix(b"\n")
    except GitFailed as exc:
        raise Unsupported(
            f"{git.folder} is in no git repository", hint="pull without --as-branch, or with --as-patch FILE"
        ) from exc


async def _head(git: Git) -> bytes:
    """The commit that is checked out; empty before the first one."""
    try:
        return (await git.run("rev-parse", "--verify", "--quiet", "HEAD^{commit}")).strip()
    except GitFailed:
        return b""


def _identity(author: str) -> dict[str, str]:
    """Whose commit it is; without these, git refuses where nobody told it who its user is."""
    return {
        f"GIT_{role}_{key}": value
        for role in ("AUTHOR", "COMMITTER")
        for key, value in (("NAME", author), ("EMAIL", "sbx@localhost"))
    }


async def _index_line(
    git: Git, guest: GuestTree, change: Change, prefix: bytes, nothing: bytes, file: FilePath
) -> bytes:
    if change.entry is None:
        return b"0 %s\t%s\0" % (nothing, prefix + change.path)
    await _bring(guest, change.path, change.entry, file)
    # As it is: what the repository would run on files it adds is not for what a sandbox wrote.
    blob = (await git.run("hash-object", "-w", "--no-filters", str(file))).strip()
    return b"%s %s\t%s\0" % (_mode(change.entry), blob, prefix + change.path)


def _mode(entry: State) -> bytes:
    if entry.kind is Kind.LINK:
        return _LINK
    return _PROGRAM if entry.is_executable else _FILE


async def _bring(guest: GuestTree, path: Path, entry: State, file: FilePath) -> None:
    """Have what the sandbox has at a path in a file.

    Raises:
        Conflict: It is another content by now.
    """
    if entry.kind is Kind.LINK:
        await asyncio.to_thread(file.write_bytes, entry.content)
        return
    digest, is_whole = new_digest(), False
    with file.open("wb") as out:
        async with aclosing(guest.read([Wanted(path, entry.content)])) as pieces:
            async for piece in pieces:
                if isinstance(piece, Result):
                    is_whole = piece.outcome is Outcome.DONE
                else:
                    digest.update(piece)
                    await asyncio.to_thread(out.write, piece)
    if not is_whole or digest.digest() != entry.content:
        raise Conflict(f"`{harmless_line(path.decode('utf-8', 'replace'))}` changed meanwhile", hint="try again")
