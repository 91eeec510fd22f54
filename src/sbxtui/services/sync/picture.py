"""What one side holds, as it was last looked at: as a whole, or path by path."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from sbxguest.tree import Entry, Note, Record, State
from sbxtui.services.sync.model import Listing, Path, ancestors, parent_of, tree_key

_IGNORED = "ignored"
# What was changing while it was looked at: the next look tells.
_PASSING = frozenset({"vanished", "unstable"})
# With more folders than that, asking each path for the folders above it takes less time than comparing beginnings.
_FEW_FOLDERS = 8


@dataclass(slots=True)
class Picture:
    """One side.

    Attributes:
        states: What stands at each path.
        notes: Paths of which nothing is told, and the word for why.
        is_complete: Whether all of it was looked at; until then `states` is only what it was taken for.
    """

    states: dict[Path, State] = field(default_factory=dict)
    notes: dict[Path, str] = field(default_factory=dict)
    is_complete: bool = False
    _children: Counter[Path] = field(default_factory=Counter)

    def take_all(self, records: Iterable[Record]) -> None:
        """Everything, from a listing that came to its end."""
        found = list(records)
        self.take_news(found, self.states.keys() - {one.path for one in found if not isinstance(one, Note)})

    def take_news(self, records: Collection[Record], gone: Iterable[Path]) -> set[Path]:
        """What a look at everything found that is not as it was, after it came to its end; returns where that is so.

        Args:
            records: What was found; what is as it was need not be there.
            gone: What stands there no more.
        """
        if not self.states:
            return self._take_first(records)
        noted = self.notes.items()
        self.notes = {}
        changed = set(gone)
        for path in sorted(changed, key=tree_key, reverse=True):
            self.put(path, None)
        for one in records:
            if isinstance(one, Note):
                self.notes[one.path] = one.code
                # What was below is gone, or told of.
                self._remove(one.path)
        for one in records:
            if isinstance(one, Note):
                continue
            before = self.states.get(one.path)
            if before is None or not one.state.is_exactly(before):
                if before is None or before != one.state:
                    changed.add(one.path)
                self.put(*_copied(one))
        self.is_complete = True
        return changed.union(path for path, _ in noted ^ self.notes.items())

    def _take_first(self, records: Iterable[Record]) -> set[Path]:
        """The same where nothing stood: what a listing names in it, a folder always before what is in that."""
        noted = self.notes.items()
        self.notes = {one.path: one.code for one in records if isinstance(one, Note)}
        self.states = dict([_copied(one) for one in records if not isinstance(one, Note)])
        self._children = Counter(map(parent_of, self.states))
        self.is_complete = True
        return self.states.keys() | {path for path, _ in noted ^ self.notes.items()}

    def take(self, paths: Iterable[Path], records: Iterable[Record], above: Iterable[Record]) -> None:
        """What stands at `paths` and below, from a listing of just these that came to its end.

        Args:
            paths: Where was looked.
            records: What was found there.
            above: What was found at the paths of `above_of(paths)` before that, without what is below them.
        """
        asked = list(paths)
        found = {record.path: record for record in above}
        no_folders = {path for path in above_of(asked) if not _is_folder(found.get(path))}
        self._drop(no_folders)
        self._add(found.values())
        self._drop(set(asked))
        self._add(records)
        # What went on between the two looks leaves no folder above; the next look tells.
        self._drop({path for path in asked if not all(map(self._has_folder, above_of({path})))})

    def put(self, path: Path, state: State | None) -> None:
        """What stands at one path now. Below what is no folder nothing stands."""
        if (state is None or not state.is_dir) and self._children.get(path):
            for one in self.below(path):
                self._remove(one)
        if state is None:
            self._remove(path)
            return
        if path not in self.states:
            self._children[parent_of(path)] += 1
        self.states[path] = state

    def put_new(self, states: Mapping[Path, State]) -> bool:
        """The same of many paths at once, if nothing stands there or below; False, and nothing done, if it does."""
        if not (self.states.keys().isdisjoint(states) and self._children.keys().isdisjoint(states)):
            return False
        self._children.update(map(parent_of, states))
        self.states.update(states)
        return True

    def below(self, path: Path) -> list[Path]:
        """What stands below a path."""
        if not self._children.get(path):
            return []
        return list(below({path}, self.states))

    def listing(self) -> Listing:
        """As the planner takes it. Not a copy: it changes with this."""
        ignored = frozenset(path for path, code in self.notes.items() if code == _IGNORED)
        return Listing(self.states, ignored, frozenset(self.notes) - ignored, self.is_complete)

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

    def _has_folder(self, path: Path) -> bool:
        state = self.states.get(path)
        return state is not None and state.is_dir

    def _drop(self, paths: set[Path]) -> None:
        """Know nothing of these, and of what is below."""
        folders = {path for path in paths if self._children[path]}
        for path in (*below(folders, self.states), *paths) if folders else paths:
            self._remove(path)
        for path in [path for path in self.notes if not paths.isdisjoint(ancestors(path))] if paths else ():
            del self.notes[path]

    def _remove(self, path: Path) -> None:
        if self.states.pop(path, None) is not None:
            self._children[parent_of(path)] -= 1

    def _add(self, records: Iterable[Record]) -> None:
        for record in records:
            if isinstance(record, Note):
                self.notes[record.path] = record.code
            else:
                self.put(record.path, record.state)


def _is_folder(record: Record | None) -> bool:
    return record is not None and not isinstance(record, Note) and record.state.is_dir


def _copied(entry: Entry) -> tuple[Path, State]:
    """Copies: a listing goes as a whole then, and leaves no holes in memory that nothing else fits in."""
    return memoryview(entry.path).tobytes(), State.packed(entry.state)


def below(folders: Collection[Path], paths: Iterable[Path]) -> Iterator[Path]:
    """Those of `paths` that are below any of the folders."""
    if len(folders) > _FEW_FOLDERS:
        wanted = frozenset(folders)
        return (path for path in paths if not wanted.isdisjoint(ancestors(parent_of(path))))
    beginnings = tuple(folder + b"/" for folder in folders)
    return (path for path in paths if path.startswith(beginnings))


def above_of(paths: Iterable[Path]) -> list[Path]:
    """Every folder above any of the paths, from the top."""
    return sorted({above for path in paths for above in ancestors(parent_of(path))}, key=tree_key)


def scope_of(paths: Iterable[Path], *sides: Mapping[Path, State]) -> set[Path]:
    """`paths`, everything above them, and everything below them on any side: what a decision about them depends on."""
    asked = set(paths)
    scope = {above for path in asked for above in ancestors(path)}
    for side in sides:
        folders = {path for path in asked if (state := side.get(path)) is not None and state.is_dir}
        if folders:
            scope.update(below(folders, side))
    return scope


def within(states: Mapping[Path, State], scope: Iterable[Path]) -> dict[Path, State]:
    """The states at the paths of a scope."""
    return {path: state for path in scope if (state := states.get(path)) is not None}


def part_of(listing: Listing, scope: Iterable[Path]) -> Listing:
    """A listing of the paths of a scope only."""
    return Listing(within(listing.entries, scope), listing.ignored, listing.unknown, listing.is_complete)
