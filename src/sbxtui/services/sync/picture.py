"""What one side holds, as it was last looked at: as a whole, or path by path."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from sbxguest.tree import Note, Record, State
from sbxtui.services.sync.model import Entry, Kind, Listing, Path, ancestors, parent_of, tree_key

_IGNORED = "ignored"
# What was changing while it was looked at: the next look tells.
_PASSING = frozenset({"vanished", "unstable"})


def entry_of(state: State) -> Entry:
    """A state without the stamp of its machine."""
    return Entry(state.kind, state.content, state.is_executable)


def state_of(entry: Entry) -> State:
    """An entry as it goes over the wire."""
    return State(entry.kind, entry.content, entry.is_executable)


@dataclass(slots=True)
class Picture:
    """One side.

    Attributes:
        states: What stands at each path.
        entries: The same without stamps.
        notes: Paths of which nothing is told, and the word for why.
        is_complete: Whether all of it was looked at since the last doubt.
    """

    states: dict[Path, State] = field(default_factory=dict)
    entries: dict[Path, Entry] = field(default_factory=dict)
    notes: dict[Path, str] = field(default_factory=dict)
    is_complete: bool = False
    _children: Counter[Path] = field(default_factory=Counter)

    def take_all(self, records: Iterable[Record]) -> None:
        """Everything, from a listing that came to its end."""
        states, entries, notes = dict(self.states), dict(self.entries), self.notes
        for each in (self.states, self.entries, notes, self._children):
            each.clear()
        for record in records:
            path = record.path
            if isinstance(record, Note):
                notes[path] = record.code
            elif record.state is states.get(path) and path not in self.states:
                # Most of a tree is as it was, and such a record is the very one of before.
                self.states[path], self.entries[path] = record.state, entries[path]
                self._children[parent_of(path)] += 1
            else:
                self.put(path, record.state)
        self.is_complete = True

    def take(self, paths: Iterable[Path], records: Iterable[Record], above: Iterable[Record]) -> None:
        """What stands at `paths` and below, from a listing of just these that came to its end.

        Args:
            paths: Where was looked.
            records: What was found there.
            above: What was found at the paths of `above_of(paths)` before that, without what is below them.
        """
        asked = list(paths)
        found = {record.path: record for record in above}
        for path in above_of(asked):
            record = found.get(path)
            if isinstance(record, Note) or record is None or record.state.kind is not Kind.DIR:
                self._drop(path)
        self._add(found.values())
        for path in asked:
            self._drop(path)
        self._add(records)
        # What went on between the two looks leaves no folder above; the next look tells.
        for path in asked:
            if any((entry := self.entries.get(one)) is None or not entry.is_dir for one in above_of({path})):
                self._drop(path)

    def put(self, path: Path, state: State | None) -> None:
        """What stands at one path now. Below what is no folder nothing stands."""
        if state is None or state.kind is not Kind.DIR:
            for one in self.below(path):
                self._remove(one)
        if state is None:
            self._remove(path)
            return
        if path not in self.entries:
            self._children[parent_of(path)] += 1
        self.states[path] = state
        self.entries[path] = entry_of(state)

    def below(self, path: Path) -> list[Path]:
        """What stands below a path."""
        if not self._children[path]:
            return []
        prefix = path + b"/"
        return [one for one in self.entries if one.startswith(prefix)]

    def listing(self) -> Listing:
        """As the planner takes it. Not a copy: it changes with this."""
        ignored = frozenset(path for path, code in self.notes.items() if code == _IGNORED)
        return Listing(self.entries, ignored, frozenset(self.notes) - ignored, self.is_complete)

    def settled(self) -> Listing:
        """The same without what was only changing: that is no reason to halt."""
        listing = self.listing()
        return replace(listing, unknown=listing.unknown - self.unsettled())

    def unsettled(self) -> set[Path]:
        """Paths that were changing while they were looked at."""
        return {path for path, code in self.notes.items() if code in _PASSING}

    def problems(self) -> dict[Path, str]:
        """Paths that are left alone because they cannot be told, and why."""
        return {path: code for path, code in self.notes.items() if code not in (_IGNORED, "vanished")}

    def _drop(self, path: Path) -> None:
        self.put(path, None)
        prefix = path + b"/"
        for one in [one for one in self.notes if one == path or one.startswith(prefix)]:
            del self.notes[one]

    def _remove(self, path: Path) -> None:
        if self.entries.pop(path, None) is not None:
            del self.states[path]
            self._children[parent_of(path)] -= 1

    def _add(self, records: Iterable[Record]) -> None:
        for record in records:
            if isinstance(record, Note):
                self.notes[record.path] = record.code
            else:
                self.put(record.path, record.state)


def above_of(paths: Iterable[Path]) -> list[Path]:
    """Every folder above any of the paths, from the top."""
    return sorted({above for path in paths for above in ancestors(parent_of(path))}, key=tree_key)


def scope_of(paths: Iterable[Path], *sides: Mapping[Path, Entry]) -> set[Path]:
    """`paths`, everything above them, and everything below them on any side: what a decision about them depends on."""
    asked = set(paths)
    scope = {above for path in asked for above in ancestors(path)}
    for side in sides:
        folders = tuple(path + b"/" for path in asked if (entry := side.get(path)) is not None and entry.is_dir)
        if folders:
            scope.update(path for path in side if path.startswith(folders))
    return scope


def within(entries: Mapping[Path, Entry], scope: Iterable[Path]) -> dict[Path, Entry]:
    """The entries at the paths of a scope."""
    return {path: entry for path in scope if (entry := entries.get(path)) is not None}


def part_of(listing: Listing, scope: Iterable[Path]) -> Listing:
    """A listing of the paths of a scope only."""
    return Listing(within(listing.entries, scope), listing.ignored, listing.unknown, listing.is_complete)
