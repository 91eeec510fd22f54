"""What stands at a path, as both ends of a sync say it, and its bytes on the wire.

Paths are bytes, relative to the root, with `/` between names. A record is `path length u16, path, state`; a state is
`kind u8, flags u8, content length u16, size u64, mtime i64, ctime i64, inode u64, content`, all big-endian. Kind 0 says
that nothing is told about the path but a word for why.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from sbxguest.tree.report import TreeError

# Hardware does it three times as fast as any hash of the standard library that is newer; the file endpoints use it too.
DIGEST_NAME = "sha256"
DIGEST_BYTES = 32
# A write within one tick of the clock that stamps files leaves no trace in the stamp.
RACY_NS = 2_000_000_000
MAX_PATH_BYTES = 4095

_STATE = struct.Struct(">BBHQqqQ")
_LENGTH = struct.Struct(">H")
_NO_NAMES = frozenset((b"", b".", b".."))
_EXECUTABLE, _HAS_STAMP, _RACY = 1, 2, 4


class BadRecord(TreeError):
    """Bytes of the other end that are no record, or name what no tree can hold."""

    def __init__(self, message: str) -> None:
        super().__init__("bad_stream", message)


class Kind(StrEnum):
    """What is synced. Sockets, pipes and devices are not: a `Note` names them."""

    FILE = "file"
    DIR = "dir"
    LINK = "link"


_CODES = {Kind.FILE: 1, Kind.DIR: 2, Kind.LINK: 3}
_KINDS = {code: kind for kind, code in _CODES.items()}


@dataclass(frozen=True, slots=True)
class Stamp:
    """What the disk says of an entry without its content being read. Only ever compared with one of the same machine.

    Attributes:
        size_bytes: 0 for folders and links.
        mtime_ns: Of the entry itself, links are not followed.
        ctime_ns: Changes with every write, even one that puts the old mtime back.
        inode: Another one after a replacement.
        is_racy: The entry was changed just before it was looked at: an equal stamp later proves nothing.
    """

    size_bytes: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    is_racy: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class State:
    """What stands, or shall stand, at a path.

    Attributes:
        kind: File, folder or link.
        content: A file's digest or a link's target; empty for a folder, and for a file nobody has read.
        is_executable: Of a file.
        stamp: None where none is known, as in what shall be.
    """

    kind: Kind
    content: bytes = b""
    is_executable: bool = False
    stamp: Stamp | None = None

    def is_same(self, other: State | None) -> bool:
        """Whether kind, content and executable bit are equal, whatever the stamps say."""
        return other is not None and (self.kind, self.content, self.is_executable) == (
            other.kind,
            other.content,
            other.is_executable,
        )


@dataclass(frozen=True, slots=True)
class Entry:
    """A path and its state."""

    path: bytes
    state: State


@dataclass(frozen=True, slots=True)
class Note:
    """A path that is there, or was a moment ago, and whose state is not told.

    Attributes:
        path: With everything below it.
        code: `ignored`, `special_file`, `other_file_system`, `access_denied`, `vanished` (it went while it was looked
            at), `unstable` (it is being written), `bad_path`, `io_error`.
    """

    path: bytes
    code: str


Record = Entry | Note


def new_digest() -> hashlib._Hash:
    """A hash for contents, to be updated."""
    return hashlib.sha256()


def encode_state(state: State | None) -> bytes:
    """The bytes of a state; None is "nothing stands there"."""
    if state is None:
        return _STATE.pack(0, 0, 0, 0, 0, 0, 0)
    stamp, flags = state.stamp, _EXECUTABLE if state.is_executable else 0
    if stamp is None:
        return _STATE.pack(_CODES[state.kind], flags, len(state.content), 0, 0, 0, 0) + state.content
    flags |= _HAS_STAMP | (_RACY if stamp.is_racy else 0)
    head = _STATE.pack(
        _CODES[state.kind],
        flags,
        len(state.content),
        stamp.size_bytes,
        stamp.mtime_ns,
        stamp.ctime_ns,
        stamp.inode,
    )
    return head + state.content


def decode_state(data: bytes, at: int) -> tuple[State | None, int]:
    """The state that begins at `at`, and where the next thing begins.

    Raises:
        BadRecord: There is none.
    """
    kind, flags, content, stamp, end = _state_at(data, at)
    if not kind:
        return None, end
    if kind not in _KINDS:
        raise BadRecord(f"a record of the unknown kind {kind}")
    return State(_KINDS[kind], content, bool(flags & _EXECUTABLE), stamp), end


def _state_at(data: bytes, at: int) -> tuple[int, int, bytes, Stamp | None, int]:
    start = at + _STATE.size
    if start > len(data):
        raise BadRecord("a record is cut off")
    kind, flags, length, size_bytes, mtime_ns, ctime_ns, inode = _STATE.unpack_from(data, at)
    if start + length > len(data):
        raise BadRecord("a record is cut off")
    stamp = Stamp(size_bytes, mtime_ns, ctime_ns, inode, bool(flags & _RACY)) if flags & _HAS_STAMP else None
    return kind, flags, data[start : start + length], stamp, start + length


def encode_record(record: Record) -> bytes:
    """The bytes of one record."""
    head = _LENGTH.pack(len(record.path)) + record.path
    if isinstance(record, Entry):
        return head + encode_state(record.state)
    code = record.code.encode()
    return head + _STATE.pack(0, 0, len(code), 0, 0, 0, 0) + code


def decode_records(data: bytes) -> Iterator[Record]:
    """The records `data` is made of.

    Raises:
        BadRecord: It holds something else, or a path that leads out of a tree.
    """
    at = 0
    while at < len(data):
        path, at = decode_path(data, at)
        kind, flags, content, stamp, at = _state_at(data, at)
        if not kind:
            yield Note(path, content.decode("ascii", "replace"))
        elif kind in _KINDS:
            yield Entry(path, State(_KINDS[kind], content, bool(flags & _EXECUTABLE), stamp))
        else:
            raise BadRecord(f"a record of the unknown kind {kind}")


def encode_path(path: bytes) -> bytes:
    """A path with its length before it."""
    return _LENGTH.pack(len(path)) + path


def decode_path(data: bytes, at: int) -> tuple[bytes, int]:
    """The path that begins at `at`, and where the next thing begins.

    Raises:
        BadRecord: There is none, or it leads out of a tree.
    """
    start = at + _LENGTH.size
    if start > len(data):
        raise BadRecord("a record is cut off")
    (length,) = _LENGTH.unpack_from(data, at)
    path = data[start : start + length]
    if len(path) != length:
        raise BadRecord("a record is cut off")
    check_path(path)
    return path, start + length


def check_path(path: bytes) -> None:
    """Refuse what is no path below a root.

    Raises:
        BadRecord: It is empty, absolute, too long, or has an empty name, `.`, `..` or a NUL in it.
    """
    if len(path) > MAX_PATH_BYTES or b"\0" in path or not _NO_NAMES.isdisjoint(path.split(b"/")):
        raise BadRecord(f"{path[:200]!r} is no path below a folder")


def to_text(path: bytes) -> str:
    """A path as JSON carries it: UTF-8, other bytes as lone surrogates."""
    return path.decode("utf-8", "surrogateescape")


def from_text(text: str) -> bytes:
    """The path of such a text.

    Raises:
        BadRecord: It stands for no bytes.
    """
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as exc:
        raise BadRecord("a path holds half a character") from exc
