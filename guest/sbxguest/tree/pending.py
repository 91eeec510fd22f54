"""What came in with a batch and is still to be made."""

from __future__ import annotations

from dataclasses import dataclass, field

from sbxguest.tree.entry import State
from sbxguest.tree.ops import Op, OpKind, Result, Source


@dataclass(slots=True)
class Pending:
    """One operation.

    Attributes:
        seq: Its number in the batch.
        op: What to do.
        mark: What tells it from another one with its number.
        done: What became of it before, if the batch comes again.
        content: A name in the stage's `incoming`; empty for none.
        problem: Why there is no content.
        built: What will stand there once the new folder that it is, or is in, is in its place.
    """

    seq: int
    op: Op
    mark: int
    done: Result | None = None
    content: str = ""
    problem: str = ""
    built: State | None = None


@dataclass(slots=True)
class BuiltFiles:
    """Files that came one behind the other and are built in the same new folder, to be there when that is.

    There may be very many: of each only the bytes of its operation are held, and what will stand there.

    Attributes:
        seq: The number of the first.
        folder: The path of the folder.
        records: The operations.
        marks: As of a `Pending`.
        states: What will stand there.
    """

    seq: int
    folder: bytes
    records: list[bytes] = field(default_factory=list)
    marks: list[int] = field(default_factory=list)
    states: list[State] = field(default_factory=list)


def blob_of(pending: Pending) -> bytes:
    """The large content an operation still needs; empty for none."""
    op = pending.op
    is_needed = op.source is Source.BLOB and op.kind is OpKind.PUT and pending.done is None
    return op.goal.content if is_needed and op.goal is not None else b""
