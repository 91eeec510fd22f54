"""What stands at a path, as both ends of a sync say it, and its bytes on the wire.

Paths are bytes, relative to the root, with `/` between names. A record is `path length u16, path, state`; a state is
`kind u8, flags u8, content length u16, size u64, mtime i64, ctime i64, inode u64, content`, all big-endian. Kind 0 says
that nothing is told about the path but a word for why.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from blake3 import blake3

from sbxguest.tree.report import TreeError

# Three times as fast as the fastest safe hash of the standard library, of which hardware does a part: a large file is
# read, hashed and sent here, hashed and written there, and the hashes were half of it.
DIGEST_NAME = "blake3"
DIGEST_BYTES = 32
# A write within one tick of the clock that stamps files leaves no trace in the stamp.
RACY_NS = 2_000_000_000
MAX_PATH_BYTES = 4095

_STATE = struct.Struct(">BBHQqqQ")
_SIZE = struct.Struct(">4xQ")
# A state without any figures.
_NO_STAMP = struct.Struct(">BBH32x")
# Where in a state its content begins.
CONTENT_AT = _STATE.size
_LENGTH = struct.Struct(">H")
_NO_NAMES = frozenset((b"", b".", b".."))
_EXECUTABLE, _HAS_STAMP, _RACY = 1, 2, 4
_IXUSR = stat.S_IXUSR
_NO_FIGURES = (0, 0, 0, 0)


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
_FILE_CODE, _DIR_CODE = _CODES[Kind.FILE], _CODES[Kind.DIR]
_NOTHING = _STATE.pack(0, 0, 0, *_NO_FIGURES)


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


class State(bytes):
    """What stands, or shall stand, at a path: the bytes that say so on the wire, for very many are held at once.

    Two are equal if kind, content and executable bit are, whatever their stamps say.

    Args:
        kind: File, folder or link.
        content: A file's digest or a link's target; empty for a folder, and for a file nobody has read.
        is_executable: Of a file.
        stamp: None where none is known, as in what shall be.
    """

    __slots__ = ()

    def __new__(
        cls, kind: Kind, content: bytes = b"", is_executable: bool = False, stamp: Stamp | None = None
    ) -> State:
        """Pack it."""
        flags, figures = _EXECUTABLE if is_executable else 0, _NO_FIGURES
        if stamp is not None:
            flags |= _HAS_STAMP | (_RACY if stamp.is_racy else 0)
            figures = (stamp.size_bytes, stamp.mtime_ns, stamp.ctime_ns, stamp.inode)
        return bytes.__new__(cls, _STATE.pack(_CODES[kind], flags, len(content), *figures) + content)

    @classmethod
    def packed(cls, data: bytes) -> State:
        """The state that all of `data` says; its kind is one there is."""
        return bytes.__new__(cls, data)

    @classmethod
    def of_file(cls, found: os.stat_result, digest: bytes, *, is_racy: bool) -> State:
        """A file's state by what the disk says of it, packed at once, for there is one for each file.

        Raises:
            struct.error: A time of it is none that a record holds.
        """
        flags = _HAS_STAMP | (_RACY if is_racy else 0) | (_EXECUTABLE if found.st_mode & _IXUSR else 0)
        size_bytes, mtime_ns, ctime_ns, inode = found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino
        head = _STATE.pack(_FILE_CODE, flags, len(digest), size_bytes, mtime_ns, ctime_ns, inode)
        return bytes.__new__(cls, head + digest)

    @property
    def kind(self) -> Kind:
        """File, folder or link."""
        return _KINDS[self[0]]

    @property
    def is_dir(self) -> bool:
        """Whether things can stand below it."""
        return self[0] == _DIR_CODE

    @property
    def is_file_with_digest(self) -> bool:
        """Whether it is a file whose content is named by a digest."""
        return self[0] == _FILE_CODE and len(self) == _STATE.size + DIGEST_BYTES

    @property
    def content(self) -> bytes:
        """A file's digest, a link's target."""
        return self[_STATE.size :]

    @property
    def is_executable(self) -> bool:
        """Of a file."""
        return bool(self[1] & _EXECUTABLE)

    @property
    def stamp(self) -> Stamp | None:
        """What the disk said of it."""
        _, flags, _, size_bytes, mtime_ns, ctime_ns, inode = _STATE.unpack_from(self)
        if not flags & _HAS_STAMP:
            return None
        return Stamp(size_bytes, mtime_ns, ctime_ns, inode, bool(flags & _RACY))

    @property
    def size_bytes(self) -> int:
        """How long a file is, as far as that is known."""
        return int(_SIZE.unpack_from(self)[0])

    def is_still(self, found: os.stat_result, *, can_be_racy: bool = False) -> bool:
        """Whether what the disk says proves that this stands there: a file whose content is known, or a folder.

        With `can_be_racy` it is enough if it seems so.
        """
        code, flags, length, size_bytes, mtime_ns, ctime_ns, inode = _STATE.unpack_from(self)
        if ctime_ns != found.st_ctime_ns or inode != found.st_ino or mtime_ns != found.st_mtime_ns:
            return False
        if not flags & _HAS_STAMP or (flags & _RACY and not can_be_racy):
            return False
        mode = found.st_mode
        if code == _DIR_CODE:
            return stat.S_ISDIR(mode)
        is_same = size_bytes == found.st_size and bool(flags & _EXECUTABLE) is bool(mode & stat.S_IXUSR)
        return is_same and code == _FILE_CODE and length > 0 and stat.S_ISREG(mode)

    def is_exactly(self, other: State | None) -> bool:
        """Whether the stamps are the same, too."""
        return other is not None and bytes.__eq__(self, other)

    def has_content_of(self, other: State) -> bool:
        """Whether both are the same but for the executable bit."""
        return self[0] == other[0] and self[_STATE.size :] == other[_STATE.size :]

    def with_executable(self, is_executable: bool) -> State:
        """The same content with this bit; if it had another one, no stamp is known of it."""
        return self if is_executable is self.is_executable else State(self.kind, self.content, is_executable)

    def with_stamp(self, stamp: Stamp | None) -> State:
        """The same with this stamp."""
        if stamp is None:
            return State.packed(encode_goal(self))
        return State(self.kind, self.content, self.is_executable, stamp)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, State):
            return NotImplemented
        is_alike = self[0] == other[0] and not (self[1] ^ other[1]) & _EXECUTABLE
        return is_alike and self[CONTENT_AT:] == other[CONTENT_AT:]

    def __ne__(self, other: object) -> bool:
        # Else that of bytes counts, to which stamps are bytes like others.
        return not self == other

    def __hash__(self) -> int:
        return hash((self[0], self[1] & _EXECUTABLE, self[_STATE.size :]))

    def __repr__(self) -> str:
        return f"State({self.kind}, {self.content!r}, {self.is_executable}, {self.stamp})"


class Entry(NamedTuple):
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


def new_digest(content: bytes = b"") -> blake3:
    """A hash for contents, to be updated with what comes behind `content`."""
    return blake3(content)


def encode_state(state: State | None) -> bytes:
    """The bytes of a state; None is "nothing stands there"."""
    return _NOTHING if state is None else state


def encode_goal(state: State) -> bytes:
    """The same without its stamp, as what shall be has none."""
    return _NO_STAMP.pack(state[0], state[1] & _EXECUTABLE, len(state) - _STATE.size) + state[_STATE.size :]


def decode_state(data: bytes, at: int) -> tuple[State | None, int]:
    """The state that begins at `at`, and where the next thing begins.

    Raises:
        BadRecord: There is none.
    """
    kind, end = _state_at(data, at)
    if not kind:
        return None, end
    if kind not in _KINDS:
        raise BadRecord(f"a record of the unknown kind {kind}")
    return bytes.__new__(State, data[at:end]), end


def _state_at(data: bytes, at: int) -> tuple[int, int]:
    """The code of the kind, and where the state ends."""
    start = at + _STATE.size
    if start > len(data):
        raise BadRecord("a record is cut off")
    end = start + (data[at + 2] << 8 | data[at + 3])
    if end > len(data):
        raise BadRecord("a record is cut off")
    return data[at], end


def encode_record(record: Record) -> bytes:
    """The bytes of one record."""
    head = _LENGTH.pack(len(record.path)) + record.path
    if isinstance(record, Entry):
        return head + encode_state(record.state)
    code = record.code.encode()
    return head + _STATE.pack(0, 0, len(code), *_NO_FIGURES) + code


def decode_records(data: bytes) -> Iterator[Record]:
    """The records `data` is made of.

    Raises:
        BadRecord: It holds something else, or a path that leads out of a tree.
    """
    at = 0
    while at < len(data):
        path, at = decode_path(data, at)
        start = at
        kind, at = _state_at(data, start)
        if not kind:
            yield Note(path, data[start + _STATE.size : at].decode("ascii", "replace"))
        elif kind in _KINDS:
            yield Entry(path, State.packed(data[start:at]))
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
    end = start + (data[at] << 8 | data[at + 1])
    if end > len(data):
        raise BadRecord("a record is cut off")
    path = data[start:end]
    check_path(path)
    return path, end


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
