"""The difference between two versions of a file, as a patch."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from contextlib import aclosing

from sbxguest.tree import Outcome, Result
from sbxtui.guest.tree import GuestTree, Wanted
from sbxtui.services.sync.folder import Folder
from sbxtui.services.sync.model import Change, Entry, Kind, Path
from sbxtui.services.sync.pair import Pair

# What is larger is told, not shown.
MAX_TEXT_BYTES = 1024 * 1024
_PROGRAM, _FILE, _LINK = "100755", "100644", "120000"


async def patch_of(pair: Pair, change: Change) -> Iterator[str]:
    """The lines of a patch that makes `change` in this machine's folder, as `git apply` takes it.

    Of what is no text, or larger than 1 MiB, it says only that it differs.

    Raises:
        SbxError: The sandbox does not answer.
    """
    old = await _text_here(pair.folder, change.path, change.expect)
    new = await _text_there(pair.guest, change.path, change.entry, _size_there(pair, change.path))
    return _lines(change, old, new)


def _lines(change: Change, old: str | None, new: str | None) -> Iterator[str]:
    name = change.path.decode("utf-8", "backslashreplace")
    if change.op in ("mkdir", "rmdir"):
        return
    yield f"diff --git a/{name} b/{name}"
    yield from _heads(change)
    if old is None or new is None:
        yield f"Binary files a/{name} and b/{name} differ"
        return
    before = "/dev/null" if change.expect is None else f"a/{name}"
    after = "/dev/null" if change.entry is None else f"b/{name}"
    for line in difflib.unified_diff(old.splitlines(True), new.splitlines(True), before, after):
        yield line.removesuffix("\n")
        if not line.endswith("\n"):
            yield "\\ No newline at end of file"


def _heads(change: Change) -> Iterator[str]:
    old, new = _mode(change.expect), _mode(change.entry)
    if not old:
        yield f"new file mode {new}"
    elif not new:
        yield f"deleted file mode {old}"
    elif old != new:
        yield f"old mode {old}"
        yield f"new mode {new}"


def _mode(entry: Entry | None) -> str:
    if entry is None or entry.is_dir:
        return ""
    if entry.kind is Kind.LINK:
        return _LINK
    return _PROGRAM if entry.is_executable else _FILE


def _size_there(pair: Pair, path: Path) -> int:
    state = pair.there.states.get(path)
    return state.stamp.size_bytes if state is not None and state.stamp is not None else 0


async def _text_here(folder: Folder, path: Path, entry: Entry | None) -> str | None:
    if entry is None or entry.kind is not Kind.FILE:
        return _short(entry)
    content = bytearray()
    async with aclosing(folder.content(path)) as pieces:
        async for piece in pieces:
            content += piece
            if len(content) > MAX_TEXT_BYTES:
                return None
    return _text(bytes(content))


async def _text_there(guest: GuestTree, path: Path, entry: Entry | None, size_bytes: int) -> str | None:
    if entry is None or entry.kind is not Kind.FILE:
        return _short(entry)
    if size_bytes > MAX_TEXT_BYTES:
        return None
    content = bytearray()
    async with aclosing(guest.read([Wanted(path, entry.content)])) as pieces:
        async for piece in pieces:
            if isinstance(piece, Result):
                return _text(bytes(content)) if piece.outcome is Outcome.DONE else None
            content += piece
            if len(content) > MAX_TEXT_BYTES:
                return None
    return None


def _short(entry: Entry | None) -> str:
    return "" if entry is None or entry.is_dir else entry.content.decode("utf-8", "backslashreplace")


def _text(content: bytes) -> str | None:
    if b"\0" in content:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None
