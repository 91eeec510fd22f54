"""Operations of a batch and their results, and the bytes of both.

An operation is `kind u8, source u8, size u64, path, known path, goal, expected`, with paths and states as `entry` has
them. A result is `seq u64, outcome u8, code length u8, code, state`.

A batch is made in the order it comes in, after all contents are there. So the sender puts folders before what is in
them, and removals last, deepest first; a removal that makes room for something else comes before that.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum, StrEnum
from typing import NamedTuple

from sbxguest.tree.entry import (
    CONTENT_AT,
    DIGEST_BYTES,
    BadRecord,
    Kind,
    State,
    check_path,
    decode_path,
    decode_state,
    encode_goal,
    encode_path,
    encode_state,
)

_HEAD = struct.Struct(">BBQ")
# The same and the length of the path.
_NEW_HEAD = struct.Struct(">BBQH")
_NOTHING = encode_state(None)
_RESULT = struct.Struct(">QBB")
_DONE_HEAD = struct.Struct(">Qxx")
_NO_PATH = b"\0\0"
# What is between the path and the digest of a new file, by its executable bit.
_BEFORE_DIGEST = {_NO_PATH + State(Kind.FILE, bytes(DIGEST_BYTES), bit)[:CONTENT_AT]: bit for bit in (False, True)}
_BEFORE_DIGEST_BYTES = len(_NO_PATH) + CONTENT_AT


class OpKind(StrEnum):
    """What an operation does. `DELETE` is for files and links, `RMDIR` for empty folders."""

    MKDIR = "mkdir"
    PUT = "put"
    LINK = "link"
    CHMOD = "chmod"
    DELETE = "delete"
    RMDIR = "rmdir"


class Source(IntEnum):
    """Where the content of a `PUT` comes from.

    With the operation; uploaded before, by its digest; or known to the receiver: at `known_path`, in its trash, or
    already at the path itself.
    """

    INLINE = 0
    BLOB = 1
    KNOWN = 2


class Outcome(IntEnum):
    """How an operation ended.

    `DONE`: what was asked for stands there, perhaps already before. `MISMATCH`: nothing was done, because something
    else than expected stands there; the result's state is what. `FAILED`: nothing was done, `code` says why.
    """

    DONE = 0
    MISMATCH = 1
    FAILED = 2


_OP_CODES = {kind: code for code, kind in enumerate(OpKind, start=1)}
_OP_KINDS = {code: kind for kind, code in _OP_CODES.items()}
_NEW_FILE_START = bytes((_OP_CODES[OpKind.PUT], Source.INLINE))
# Looking a member up by its number is slow, and there are as many as there are files.
_SOURCES = {int(source): source for source in Source}
_OUTCOMES = {int(outcome): outcome for outcome in Outcome}
# By the first byte of a state.
_MAKERS = {
    State(Kind.DIR)[0]: OpKind.MKDIR,
    State(Kind.FILE)[0]: OpKind.PUT,
    State(Kind.LINK)[0]: OpKind.LINK,
}
_MAKER_CODES = {first: _OP_CODES[kind] for first, kind in _MAKERS.items()}
_GOAL_KINDS = {
    OpKind.MKDIR: Kind.DIR,
    OpKind.PUT: Kind.FILE,
    OpKind.LINK: Kind.LINK,
    OpKind.CHMOD: Kind.FILE,
    OpKind.DELETE: None,
    OpKind.RMDIR: None,
}


class Op(NamedTuple):
    """One step on a tree, made only while what is expected stands at its path.

    Attributes:
        kind: What it does.
        path: Where; the folder above must be there.
        goal: What stands there afterwards, without stamp; None after a removal.
        expect: What must stand there now; None for nothing. It holds if the stamps are equal (of a racy one that proves
            nothing), else if kind, content and executable bit are. A state without content is told by its stamp alone.
        size_bytes: Of the content of a `PUT`.
        source: Of the content of a `PUT`.
        known_path: Where the receiver may have it already, for `KNOWN`; empty for no idea.
    """

    kind: OpKind
    path: bytes
    goal: State | None = None
    expect: State | None = None
    size_bytes: int = 0
    source: Source = Source.INLINE
    known_path: bytes = b""


class NewFile(NamedTuple):
    """A file that is to be made where nothing is expected, and all of its content.

    Attributes:
        path: Where.
        digest: Of the content.
        is_executable: Its executable bit.
        record: The bytes of the operation.
        content: What it is to hold; not checked yet.
    """

    path: bytes
    digest: bytes
    is_executable: bool
    record: bytes
    content: bytes

    @property
    def op(self) -> Op:
        """The operation."""
        return Op(OpKind.PUT, self.path, State(Kind.FILE, self.digest, self.is_executable), None, len(self.content))


class Result(NamedTuple):
    """What became of an operation.

    Attributes:
        seq: Of the operation.
        outcome: See there.
        state: What stands at the path now, with its stamp; None for nothing, or for what is not synced.
        code: Why it failed: `disk_full`, `access_denied`, `not_empty`, `file_not_found` (no folder to put it in),
            `not_a_directory`, `content_missing` (send it inline), `wrong_content`, `special_file`, `busy`, `io_error` …
    """

    seq: int
    outcome: Outcome
    state: State | None = None
    code: str = ""


def maker_of(state: State) -> OpKind:
    """What makes this where nothing stands."""
    return _MAKERS[state[0]]


def encode_op(op: Op) -> bytes:
    """The bytes of an operation, without its content."""
    head = _HEAD.pack(_OP_CODES[op.kind], op.source, op.size_bytes)
    known = encode_path(op.known_path) if op.known_path else _NO_PATH
    return head + encode_path(op.path) + known + encode_state(op.goal) + encode_state(op.expect)


def encode_new(path: bytes, state: State, size_bytes: int = 0) -> bytes:
    """The same of one that makes this where nothing stands; a file's content comes inline."""
    head = _NEW_HEAD.pack(_MAKER_CODES[state[0]], Source.INLINE, size_bytes, len(path))
    return b"".join((head, path, _NO_PATH, encode_goal(state), _NOTHING))


def decode_op(data: bytes) -> tuple[Op, int]:
    """The operation at the start of `data`, and where it ends; its content may follow.

    Raises:
        BadRecord: It is none, or makes no sense.
    """
    if len(data) < _HEAD.size:
        raise BadRecord("an operation is cut off")
    code, source, size_bytes = _HEAD.unpack_from(data)
    if code not in _OP_KINDS or source not in _SOURCES:
        raise BadRecord("an operation of an unknown kind")
    path, at = decode_path(data, _HEAD.size)
    known_path = b""
    if data[at : at + 2] == _NO_PATH:
        at += 2
    else:
        known_path, at = decode_path(data, at)
    goal, at = decode_state(data, at)
    expect, at = decode_state(data, at)
    op = Op(_OP_KINDS[code], path, goal, expect, size_bytes, _SOURCES[source], known_path)
    check_op(op)
    return op, at


def decode_new_file(data: bytes) -> NewFile | None:
    """What an operation with all of its content behind it makes, if that is a file and nothing is expected.

    It is told by its bytes, for there is one for each file of a first sync.

    Raises:
        BadRecord: It has a path that leads out of a tree.
    """
    if data[:2] != _NEW_FILE_START or len(data) < _NEW_HEAD.size:
        return None
    _, _, size_bytes, path_bytes = _NEW_HEAD.unpack_from(data)
    path_end = _NEW_HEAD.size + path_bytes
    digest_at = path_end + _BEFORE_DIGEST_BYTES
    digest_end = digest_at + DIGEST_BYTES
    end = digest_end + CONTENT_AT
    is_executable = _BEFORE_DIGEST.get(data[path_end:digest_at])
    if is_executable is None or data[digest_end:end] != _NOTHING or len(data) - end != size_bytes:
        return None
    path = data[_NEW_HEAD.size : path_end]
    check_path(path)
    return NewFile(path, data[digest_at:digest_end], is_executable, data[:end], data[end:])


def check_op(op: Op) -> None:
    """Refuse what makes no sense.

    Raises:
        BadRecord: The goal is none the operation could reach, or a content is no digest.
    """
    if (op.goal.kind if op.goal else None) is not _GOAL_KINDS[op.kind]:
        raise BadRecord(f"{op.kind} with a goal of another kind")
    if op.kind is OpKind.PUT and (op.goal is None or len(op.goal.content) != DIGEST_BYTES):
        raise BadRecord("a content without its digest")
    if op.kind is OpKind.LINK and (op.goal is None or not op.goal.content or b"\0" in op.goal.content):
        raise BadRecord("a link without a target")
    if op.kind in (OpKind.CHMOD, OpKind.DELETE, OpKind.RMDIR) and op.expect is None:
        raise BadRecord(f"{op.kind} where nothing is expected")


def encode_result(result: Result) -> bytes:
    """The bytes of a result."""
    code = result.code.encode()
    return _RESULT.pack(result.seq, result.outcome, len(code)) + code + encode_state(result.state)


def encode_done(seq: int, state: State) -> bytes:
    """The same of one that is done, and left this."""
    return _DONE_HEAD.pack(seq) + state


def decode_results(data: bytes) -> Iterator[Result]:
    """The results `data` is made of.

    Raises:
        BadRecord: It holds something else.
    """
    at = 0
    while at < len(data):
        if at + _RESULT.size > len(data):
            raise BadRecord("a result is cut off")
        seq, outcome, length = _RESULT.unpack_from(data, at)
        at += _RESULT.size
        if outcome not in _OUTCOMES:
            raise BadRecord(f"a result with the unknown outcome {outcome}")
        code = data[at : at + length].decode("ascii", "replace") if length else ""
        state, at = decode_state(data, at + length)
        yield Result(seq, _OUTCOMES[outcome], state, code)
