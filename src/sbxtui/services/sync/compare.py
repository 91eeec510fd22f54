"""The difference between two versions of a file, as a patch."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from contextlib import aclosing

from sbxguest.tree import Outcome, Result
from sbxtui.core.errors import Unsupported
from sbxtui.core.text import harmless_line
from sbxtui.guest.tree import GuestTree, Wanted
from sbxtui.services.sync.binary import binary_lines
from sbxtui.services.sync.folder import Folder
from sbxtui.services.sync.model import Change, Kind, Op, Path, State
from sbxtui.services.sync.pair import Pair
from sbxtui.services.sync.transfer import size_of

# What is larger is told, not shown.
MAX_TEXT_BYTES = 1024 * 1024
_MAX_BINARY_BYTES = 64 * 1024 * 1024
_BINARY = "Binary files "
_PROGRAM, _FILE, _LINK = "100755", "100644", "120000"
_ESCAPES = {ord('"'): '\\"', ord("\\"): "\\\\", ord("\n"): "\\n", ord("\t"): "\\t", ord("\r"): "\\r"}


async def patch_of(pair: Pair, change: Change) -> Iterator[str]:
    """The lines of a patch that makes `change` in this machine's folder, as `git apply` takes it.

    Of what is no text, or larger than 1 MiB, it says only that it differs.

    Raises:
        SbxError: The sandbox does not answer.
    """
    old = await _text_here(pair.folder, change.path, change.expect)
    new = await _text_there(pair.guest, change.path, change.entry, _size_there(pair, change.path))
    return _lines(change, old, new)


async def whole_patch_of(pair: Pair, change: Change) -> list[str]:
    """The same with every content in full, for a patch that is kept.

    Raises:
        Unsupported: A content is too large for that, or another one by now. SbxError: The sandbox does not answer.
    """
    lines: list[str] = []
    for line in await patch_of(pair, change):
        # Within a text no line of a patch begins so, and of one change at most one content is told like that.
        lines += await _binary_part(pair, change) if line.startswith(_BINARY) else [line]
    return lines


async def _binary_part(pair: Pair, change: Change) -> list[str]:
    path, before, after = change.path, change.expect, change.entry
    old = await content_here(pair.folder, path, _MAX_BINARY_BYTES) if _is_file(before) else b""
    new = b""
    if after is not None and _is_file(after):
        new = await content_there(pair.guest, path, after.content, _MAX_BINARY_BYTES) or b""
        if _size_there(pair, path) != len(new):
            raise _not_in_a_patch(path)
    if old is None:
        raise _not_in_a_patch(path)
    is_edit = _is_file(before) and _is_file(after)
    mode = _mode(after) if is_edit and _mode(before) == _mode(after) else ""
    return list(binary_lines(old if _is_file(before) else None, new if _is_file(after) else None, mode))


def _not_in_a_patch(path: Path) -> Unsupported:
    name = harmless_line(path.decode("utf-8", "replace"))
    return Unsupported(
        f"`{name}` is too large for a patch, or changed meanwhile", hint="pull it, or add --as-branch NAME"
    )


def _is_file(entry: State | None) -> bool:
    return entry is not None and entry.kind is Kind.FILE


def _lines(change: Change, old: str | None, new: str | None) -> Iterator[str]:
    if change.op in (Op.MKDIR, Op.RMDIR):
        return
    before, after = change.expect, change.entry
    if before is not None and after is not None and before.kind is not after.kind:
        # To git, another kind of thing is another thing.
        yield from _part(change.path, before, None, old, "")
        yield from _part(change.path, None, after, "", new)
    else:
        yield from _part(change.path, before, after, old, new)


def _part(path: Path, before: State | None, after: State | None, old: str | None, new: str | None) -> Iterator[str]:
    name_before, name_after = _quoted(b"a/" + path), _quoted(b"b/" + path)
    yield f"diff --git {name_before} {name_after}"
    yield from _heads(before, after)
    if old is None or new is None:
        yield f"{_BINARY}{name_before} and {name_after} differ"
        return
    from_name = "/dev/null" if before is None else name_before
    to_name = "/dev/null" if after is None else name_after
    for line in difflib.unified_diff(_split(old), _split(new), from_name, to_name):
        yield line.removesuffix("\n")
        if not line.endswith("\n"):
            yield "\\ No newline at end of file"


def _split(text: str) -> list[str]:
    """Lines with their ends. Only a newline ends one, whatever else looks like it."""
    lines = text.split("\n")
    last = lines.pop()
    return [*(f"{line}\n" for line in lines), *([last] if last else [])]


def _quoted(name: bytes) -> str:
    """A name as git writes it: one that could be taken for something else as a C string."""
    if all(0x20 <= byte < 0x7F and byte not in b'"\\' for byte in name):
        return name.decode("ascii")
    return '"' + "".join(_ESCAPES.get(byte) or _plain(byte) for byte in name) + '"'


def _plain(byte: int) -> str:
    return chr(byte) if 0x20 <= byte < 0x7F else f"\\{byte:03o}"


def _heads(before: State | None, after: State | None) -> Iterator[str]:
    old, new = _mode(before), _mode(after)
    if not old:
        yield f"new file mode {new}"
    elif not new:
        yield f"deleted file mode {old}"
    elif old != new:
        yield f"old mode {old}"
        yield f"new mode {new}"


def _mode(entry: State | None) -> str:
    if entry is None or entry.is_dir:
        return ""
    if entry.kind is Kind.LINK:
        return _LINK
    return _PROGRAM if entry.is_executable else _FILE


def _size_there(pair: Pair, path: Path) -> int:
    return size_of(pair.there.states.get(path))


async def _text_here(folder: Folder, path: Path, entry: State | None) -> str | None:
    if entry is None or entry.kind is not Kind.FILE:
        return _short(entry)
    return _text(await content_here(folder, path, MAX_TEXT_BYTES))


async def _text_there(guest: GuestTree, path: Path, entry: State | None, size_bytes: int) -> str | None:
    if entry is None or entry.kind is not Kind.FILE:
        return _short(entry)
    return (
        None if size_bytes > MAX_TEXT_BYTES else _text(await content_there(guest, path, entry.content, MAX_TEXT_BYTES))
    )


async def content_here(folder: Folder, path: Path, limit_bytes: int) -> bytes | None:
    """What a file of this machine holds, nothing if it is not there; None if that is longer."""
    content = bytearray()
    async with aclosing(folder.content(path)) as pieces:
        async for piece in pieces:
            content += piece
            if len(content) > limit_bytes:
                return None
    return bytes(content)


async def content_there(guest: GuestTree, path: Path, digest: bytes, limit_bytes: int) -> bytes | None:
    """What a file of the sandbox holds; None if that is longer, or another one by now.

    Raises:
        SbxError: The sandbox does not answer.
    """
    content = bytearray()
    async with aclosing(guest.read([Wanted(path, digest)])) as pieces:
        async for piece in pieces:
            if isinstance(piece, Result):
                return bytes(content) if piece.outcome is Outcome.DONE else None
            content += piece
            if len(content) > limit_bytes:
                return None
    return None


def _short(entry: State | None) -> str | None:
    return "" if entry is None or entry.is_dir else _text(entry.content)


def _text(content: bytes | None) -> str | None:
    if content is None or b"\0" in content:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None
