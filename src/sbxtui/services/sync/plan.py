"""The three-way planner: what both sides last agreed on, what each has now, and so what is to be done.

Pure. It decides each path by itself first, then makes the decisions fit together as trees, then turns what each side
shall have into steps. Every rule errs on the side of keeping bytes: an edit beats a deletion, two edits are a conflict
that changes neither, a folder goes only when nothing is left in it, and a path nobody can tell about is left alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from sbxguest.tree.ops import maker_of
from sbxtui.services.sync.model import (
    DIR,
    Change,
    Difference,
    Listing,
    Mode,
    Op,
    Path,
    Plan,
    Side,
    State,
    ancestors,
    parent_of,
    tree_key,
)

Base = Mapping[Path, State]


def plan(base: Base, local: Listing, guest: Listing, mode: Mode) -> Plan:
    """What makes the two sides agree.

    Args:
        base: What both had when they last agreed; empty at first contact, and then only a mirror deletes anything.
        local: This machine's folder.
        guest: The sandbox's.
        mode: Which way changes go.

    Returns:
        The plan; for a listing that is not complete an empty one. It changes this machine only in `TWO_WAY`.
    """
    if not (local.is_complete and guest.is_complete):
        return Plan()
    is_first = not (base or guest.entries or guest.ignored or guest.unknown)
    if is_first and all(_is_beside(path, local.entries) for path in local.ignored | local.unknown):
        return _everything(local)
    return _Planner(base, local, guest, mode).plan()


def _is_beside(path: Path, entries: Mapping[Path, State]) -> bool:
    """Whether a path of which nothing is told is only one more in its folder."""
    above = entries.get(parent_of(path))
    return path not in entries and (not parent_of(path) or (above is not None and above.is_dir))


def _everything(local: Listing) -> Plan:
    """What the planner comes to where only this machine has something: there is nothing to weigh."""
    entries, side = local.entries, Side.GUEST
    in_order = [(path, entries[path]) for path in sorted(entries, key=tree_key)]
    return Plan(changes=tuple([Change(side, maker_of(state), path, state, None) for path, state in in_order]))


@dataclass(slots=True)
class _Node:
    """One path: what stands there, and what shall."""

    path: Path
    base: State | None
    local: State | None
    guest: State | None
    local_goal: State | None = None
    guest_goal: State | None = None
    is_conflict: bool = False
    is_frozen: bool = False
    is_survivor: bool = False
    is_kept: bool = False

    def freeze(self) -> None:
        """Leave both sides as they are."""
        self.local_goal, self.guest_goal = self.local, self.guest
        self.is_frozen, self.is_survivor, self.is_kept = True, False, False

    @property
    def difference(self) -> Difference:
        """As it is told to people."""
        return Difference(self.path, self.base, self.local, self.guest)


@dataclass(slots=True)
class _Planner:
    base: Base
    local: Listing
    guest: Listing
    mode: Mode
    agreed: dict[Path, State | None] = field(default_factory=dict)

    def plan(self) -> Plan:
        nodes = sorted(self._nodes(), key=lambda node: tree_key(node.path))
        for node in nodes:
            _decide(node, self.mode)
        self._fit_together(nodes)
        _freeze_below_conflicts(nodes)
        self._note_agreement(nodes)
        open_nodes = [node for node in nodes if not node.is_frozen and node.local_goal != node.guest_goal]
        return Plan(
            changes=(*_steps(Side.GUEST, nodes), *_steps(Side.LOCAL, nodes)),
            agreed=self.agreed,
            conflicts=tuple(node.difference for node in nodes if node.is_conflict),
            guest_changes=tuple(node.difference for node in open_nodes if not node.is_kept),
            survivors=tuple(node.path for node in nodes if node.is_survivor),
            kept_dirs=tuple(node.path for node in nodes if node.is_kept),
        )

    def _nodes(self) -> Iterator[_Node]:
        """Every path on which anything differs; what is equal everywhere has its folders on both sides, too."""
        ignored = self.local.ignored | self.guest.ignored
        unknown = self.local.unknown | self.guest.unknown
        base, local, guest = self.base, self.local.entries, self.guest.entries
        for path in _each_once(base, local, guest):
            was, here, there = base.get(path), local.get(path), guest.get(path)
            if was is here is there or was == here == there:
                continue
            if not ignored.isdisjoint(ancestors(path)):
                if was is not None:
                    self.agreed[path] = None
            elif unknown.isdisjoint(ancestors(path)):
                yield _Node(path, was, here, there)

    def _fit_together(self, nodes: list[_Node]) -> None:
        """From the leaves up: what stays somewhere needs folders above it, and nothing stands below a file."""
        held_here = _parents_of_what_is_left_alone(self.local, self.guest)
        held_there = _parents_of_what_is_left_alone(self.guest, self.local)
        for node in reversed(nodes):
            is_held_here, is_held_there = node.path in held_here, node.path in held_there
            if _is_file(node.local_goal, is_held_here) or _is_file(node.guest_goal, is_held_there):
                node.freeze()
                node.is_conflict = True
            elif not node.is_conflict:
                _keep_as_folder(node, is_held_here, is_held_there)
            above = parent_of(node.path)
            if node.local_goal is not None:
                held_here.add(above)
            if node.guest_goal is not None:
                held_there.add(above)

    def _note_agreement(self, nodes: Iterable[_Node]) -> None:
        for node in nodes:
            is_agreed = node.local == node.guest == node.local_goal == node.guest_goal
            if is_agreed and node.base != node.local:
                self.agreed[node.path] = node.local


def _each_once(base: Base, local: Mapping[Path, State], guest: Mapping[Path, State]) -> Iterator[Path]:
    """Every path of any side; a set of all of them would be as large as a side."""
    yield from base
    yield from (path for path in local if path not in base)
    yield from (path for path in guest if path not in base and path not in local)


def _decide(node: _Node, mode: Mode) -> None:
    """What one path shall be on each side, as if it stood alone."""
    if mode is Mode.MIRROR:
        node.local_goal, node.guest_goal = node.local, node.local
        return
    is_local_changed, is_guest_changed = not _same(node.local, node.base), not _same(node.guest, node.base)
    if _same(node.local, node.guest):
        winner = node.local
    elif not (is_local_changed and is_guest_changed):
        winner = node.local if is_local_changed else node.guest
    elif node.local is None or node.guest is None:
        winner = node.guest if node.local is None else node.local
        node.is_survivor = True
    else:
        node.freeze()
        node.is_conflict = True
        return
    goal = _with_merged_bit(winner, node)
    is_from_guest = not _same(winner, node.local)
    node.local_goal = goal if mode is Mode.TWO_WAY else node.local
    node.guest_goal = node.guest if mode is Mode.PUSH and is_from_guest else goal


def _same(one: State | None, other: State | None) -> bool:
    """Whether two states are equal but for the executable bit."""
    if one is None or other is None or one is other:
        return one is other
    return one.has_content_of(other)


def _with_merged_bit(winner: State | None, node: _Node) -> State | None:
    """The winner with the executable bit that was changed last; a bit and a content changed apart do not conflict."""
    if winner is None or node.local is None or node.guest is None or node.local.kind is not node.guest.kind:
        return winner
    was = node.base.is_executable if node.base is not None else node.guest.is_executable
    is_local_changed = node.local.is_executable != was
    return winner.with_executable(node.local.is_executable if is_local_changed else node.guest.is_executable)


def _is_file(goal: State | None, is_held: bool) -> bool:
    """Whether what holds something shall be no folder."""
    return is_held and goal is not None and not goal.is_dir


def _keep_as_folder(node: _Node, is_held_here: bool, is_held_there: bool) -> None:
    """A folder that was to go stays, or returns, where something stays in it."""
    if is_held_here and node.local_goal is None:
        node.local_goal = DIR
    if is_held_there and node.guest_goal is None:
        node.guest_goal = DIR
        node.is_kept = node.guest == DIR


def _freeze_below_conflicts(nodes: Iterable[_Node]) -> None:
    """Below a path that is a folder on one side only, nothing can be decided before that is."""
    frozen: Path | None = None
    for node in nodes:
        if frozen is not None and node.path.startswith(frozen):
            node.freeze()
            node.is_conflict = False
        elif node.is_conflict and (node.local == DIR) != (node.guest == DIR):
            frozen = node.path + b"/"


def _parents_of_what_is_left_alone(own: Listing, other: Listing) -> set[Path]:
    """Folders of one side that hold what nothing is decided on; what only the other cannot tell about is part of it."""
    alone = own.unknown | own.ignored
    alone_there = (path for path in other.unknown | other.ignored if path in own.entries)
    return {parent_of(path) for path in (*alone, *alone_there)}


def _steps(side: Side, nodes: list[_Node]) -> Iterator[Change]:
    """The steps of one side: first what stands in the way, then what is made, then what goes, deepest first."""
    all_moves = ((node.path, *_state(side, node)) for node in nodes)
    moves = [(path, now, goal) for path, now, goal in all_moves if now is not goal and now != goal]
    in_the_way = {path for path, now, goal in moves if _is_in_the_way(now, goal)}
    late: list[Change] = []
    early: list[Change] = []
    making: list[Change] = []
    for path, now, goal in moves:
        is_flip = now is not None and goal is not None and now.is_dir is not goal.is_dir
        if now is not None and (goal is None or is_flip):
            removal = Change(side, Op.RMDIR if now.is_dir else Op.DELETE, path, None, now)
            is_early = is_flip or not in_the_way.isdisjoint(ancestors(parent_of(path)))
            (early if is_early else late).append(removal)
        if goal is not None:
            making.append(Change(side, _making(now, goal), path, goal, None if is_flip else now))
    yield from reversed(early)
    yield from making
    yield from reversed(late)


def _is_in_the_way(now: State | None, goal: State | None) -> bool:
    """Whether a folder gives its place to something else."""
    return now is not None and goal is not None and now.is_dir and not goal.is_dir


def _state(side: Side, node: _Node) -> tuple[State | None, State | None]:
    return (node.local, node.local_goal) if side is Side.LOCAL else (node.guest, node.guest_goal)


def _making(now: State | None, goal: State) -> Op:
    is_kept = now is not None and not goal.is_dir and now.has_content_of(goal)
    return Op.CHMOD if is_kept else maker_of(goal)
