"""What the planner of a sync compares and decides, as values. Paths are bytes, relative, with `/` between names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import NamedTuple

from sbxguest.tree import Kind as Kind
from sbxguest.tree import OpKind
from sbxguest.tree import State as State
from sbxtui.core.errors import UsageError

Path = bytes
# Creating puts the folder above first, removing a folder what is in it.
Op = OpKind

# No times count: clocks of two machines are never compared, and two states are equal whatever their stamps say.
DIR = State(Kind.DIR)


@dataclass(frozen=True, slots=True)
class Listing:
    """What one side holds.

    Attributes:
        entries: Every path, folders too.
        ignored: Paths the rules leave out, with all below them; what is known of them is forgotten.
        unknown: Paths that are there and cannot be told: unreadable, being written, of another file system, or of a
            kind that is not synced. With all below them they are left as they are, and so are the folders above.
        is_complete: Whether it was read to its end. Nothing follows from one that was not.
    """

    entries: Mapping[Path, State]
    ignored: frozenset[Path] = frozenset()
    unknown: frozenset[Path] = frozenset()
    is_complete: bool = True

    def check(self) -> None:
        """Refuse what no folder can hold: the other side may send anything.

        Raises:
            UsageError: A path leads elsewhere, or stands below something that is no folder.
        """
        for path in (*self.entries, *self.ignored, *self.unknown):
            names = path.split(b"/")
            if b"" in names or b"." in names or b".." in names or b"\0" in path:
                raise UsageError(f"a listing names `{path[:200]!r}`, which is no path below a folder")
            above = parent_of(path)
            if above and not self._may_hold(above):
                raise UsageError(f"a listing names `{path[:200]!r}` below something that is no folder")

    def _may_hold(self, path: Path) -> bool:
        entry = self.entries.get(path)
        return entry is not None and entry.is_dir


class Mode(StrEnum):
    """Which way changes go."""

    PUSH = "push"
    TWO_WAY = "two-way"
    MIRROR = "mirror"


class OnConflict(StrEnum):
    """What becomes of conflicts that nobody looks at: they stay, one side wins, or texts are merged."""

    STOP = "stop"
    LOCAL = "local"
    GUEST = "guest"
    MERGE = "merge"


class Side(Enum):
    """Where a change is made."""

    LOCAL = "local"
    GUEST = "guest"


class Change(NamedTuple):
    """One step on one side. It is made only while `expect` is what stands there; None: nothing does."""

    side: Side
    op: Op
    path: Path
    entry: State | None
    expect: State | None


@dataclass(frozen=True, slots=True)
class Difference:
    """A path on which both sides stay as they are, with what they had when they last agreed."""

    path: Path
    base: State | None
    local: State | None
    guest: State | None


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do, in an order in which every step can be made.

    Attributes:
        changes: Steps.
        agreed: Paths on which both sides are equal already and the common state is out of date; None: to be forgotten.
        conflicts: Both sides wrote something else, or one replaced what the other still writes in.
        guest_changes: What only the guest changed, where changes do not come back by themselves.
        survivors: Edits on one side of what the other deleted: they stay, or return.
        kept_dirs: Deleted folders that stay on the other side for what is in them.
    """

    changes: tuple[Change, ...] = ()
    agreed: Mapping[Path, State | None] = field(default_factory=dict)
    conflicts: tuple[Difference, ...] = ()
    guest_changes: tuple[Difference, ...] = ()
    survivors: tuple[Path, ...] = ()
    kept_dirs: tuple[Path, ...] = ()


def parent_of(path: Path) -> Path:
    """The path above; empty for what stands in the root."""
    return path.rpartition(b"/")[0]


def tree_key(path: Path) -> bytes:
    """A sort key by which a folder comes directly before all that is below it."""
    return path.replace(b"/", b"\0")


def ancestors(path: Path) -> Iterator[Path]:
    """The path itself and everything above it, nearest first."""
    while path:
        yield path
        path = parent_of(path)
