"""What the sandbox changed, as a person reviews it, takes it over, decides between two versions, and takes it back."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sbxguest.tree import Outcome, Source, State
from sbxtui.guest.tree import Step as GuestStep
from sbxtui.services.sync.halts import Halt
from sbxtui.services.sync.intake import Intake
from sbxtui.services.sync.model import Change, Difference, Kind, Mode, Op, Path, Side, tree_key
from sbxtui.services.sync.pair import Outcomes, Pair
from sbxtui.services.sync.picture import entry_of, part_of, scope_of, within
from sbxtui.services.sync.plan import plan
from sbxtui.services.sync.safety import refused_of, without
from sbxtui.services.sync.transfer import wire_op
from sbxtui.store.ancestors import Batch

# Files that this machine runs by itself, or that decide what it runs.
_RUN_NAMES = frozenset({b".envrc", b"makefile", b"package.json", b"setup.py", b"conftest.py", b"build.rs", b".npmrc"})
_RUN_FOLDERS = (b".github/", b".gitlab-ci", b".vscode/", b".idea/", b".husky/", b".circleci/", b".devcontainer/")


@dataclass(frozen=True, slots=True)
class Reviewed:
    """What taking over would do.

    Attributes:
        changes: Steps in this machine's folder, in their order.
        conflicts: Paths both sides changed: they are left as they are.
        halts: Why a person has to look first; empty when nothing speaks against it.
        refused: Paths that are never taken over, and the word for why.
    """

    changes: tuple[Change, ...]
    conflicts: tuple[Difference, ...]
    halts: tuple[Halt, ...]
    refused: dict[Path, str]


async def review(pair: Pair, paths: Sequence[Path] = ()) -> Reviewed:
    """Look at both sides, and say what the sandbox changed at `paths` and below; at all of it if there are none.

    The caller holds `Ancestors.cycle`, here and in the rest of this module.
    """
    await pair.load()
    await pair.look()
    pushed = pair.compare()
    halts = pair.halts(pushed)
    if not halts:
        await pair.adopt(pushed)
    planned = plan(pair.base, pair.local.listing(), pair.there.listing(), Mode.TWO_WAY)
    halts = halts or pair.halts(planned)
    wanted = [change for change in planned.changes if change.side is Side.LOCAL and _is_asked(change, paths)]
    refused = refused_of(wanted)
    return Reviewed(tuple(without(wanted, refused)), planned.conflicts, halts, refused)


def _is_asked(change: Change, paths: Sequence[Path]) -> bool:
    if not paths or any(change.path == path or change.path.startswith(path + b"/") for path in paths):
        return True
    return change.op is Op.MKDIR and any(path.startswith(change.path + b"/") for path in paths)


def may_run(path: Path) -> bool:
    """Whether this machine may run what the file says without being asked: a person should look twice."""
    lowered = path.lower()
    return lowered.rpartition(b"/")[2] in _RUN_NAMES or lowered.startswith(_RUN_FOLDERS)


async def take_over(pair: Pair, intake: Intake, reviewed: Reviewed, on_bytes: Callable[[int], None]) -> Outcomes:
    """Make the changes in this machine's folder; what they replace goes to the trash."""
    return await pair.pull(reviewed.changes, intake, on_bytes)


async def resolve(pair: Pair, intake: Intake, path: Path, winner: Side) -> Outcomes:
    """Give both sides what one has at a path and below; the other's version goes to the trash of its side.

    Both sides were looked at before.
    """
    loser = pair.there if winner is Side.LOCAL else pair.local
    scope = scope_of({path}, pair.base, pair.local.entries, pair.there.entries)
    base = within(pair.base, scope)
    for one in scope:
        if one == path or one.startswith(path + b"/"):
            # As if the loser had changed nothing.
            base.pop(one, None)
            if (entry := loser.entries.get(one)) is not None:
                base[one] = entry
    mode = Mode.PUSH if winner is Side.LOCAL else Mode.TWO_WAY
    local, there = part_of(pair.local.listing(), scope), part_of(pair.there.listing(), scope)
    target = Side.GUEST if winner is Side.LOCAL else Side.LOCAL
    changes = [change for change in plan(base, local, there, mode).changes if change.side is target]
    if target is Side.GUEST:
        outcomes = await pair.push(changes, lambda done, size_bytes: None, word="resolve")
    else:
        outcomes = await pair.pull(changes, intake, lambda size_bytes: None, word="resolve")
    await pair.adopt(pair.compare())
    return outcomes


async def undo(pair: Pair, intake: Intake, batch: Batch) -> Outcomes:
    """Take a batch back, as far as nobody changed the same since; then both agree on what was before it."""
    outcomes = Outcomes()
    changes = [_inverse(one.side, one.path, one.before, one.after) for one in reversed(batch.steps)]
    # Folders first come back, then what is in them; what was added goes from the inside out.
    changes.sort(key=lambda change: (change.entry is None, tree_key(change.path) if change.entry else b""))
    here = [change for change in changes if change.side is Side.LOCAL]
    there = [change for change in changes if change.side is Side.GUEST]
    states = {(one.side, one.path): one.after for one in batch.steps}
    before: dict[Path, State | None] = {}
    for made in intake.restore(here, _known(states, Side.LOCAL)):
        if made.result is not None and made.result.outcome is Outcome.DONE:
            outcomes.done.append(made.change.path)
            before[made.change.path] = made.result.state if made.change.entry is not None else None
        else:
            outcomes.failed[made.change.path] = (made.result.code if made.result else "") or "changed_meanwhile"
    if there:
        await pair.greet()
        known = _known(states, Side.GUEST)
        sizes = {one.path: _size_of(one.before) for one in batch.steps if one.side == Side.GUEST.value}
        steps = [
            GuestStep(wire_op(change, known, size_bytes=sizes[change.path], source=_trash_of(change)))
            for change in there
        ]
        results = await pair.guest.batch(f"undo-{batch.number}-{os.urandom(8).hex()}", steps)
        for result in results:
            path = there[result.seq].path
            if result.outcome is Outcome.DONE:
                outcomes.done.append(path)
            else:
                outcomes.failed[path] = result.code or "changed_meanwhile"
    await pair.agree_on(before)
    pair.ancestors.drop_batch(batch.number)
    return outcomes


def _known(states: dict[tuple[str, Path], State | None], side: Side) -> dict[Path, State]:
    return {path: state for (where, path), state in states.items() if where == side.value and state is not None}


def _size_of(state: State | None) -> int:
    return state.stamp.size_bytes if state is not None and state.stamp is not None else 0


def _trash_of(change: Change) -> Source:
    return Source.KNOWN if change.op is Op.PUT else Source.INLINE


def _inverse(side: str, path: Path, before: State | None, after: State | None) -> Change:
    """What undoes a step."""
    goal = None if before is None else entry_of(before)
    now = None if after is None else entry_of(after)
    if goal is None:
        op = Op.RMDIR if now is not None and now.is_dir else Op.DELETE
    elif goal.is_dir:
        op = Op.MKDIR
    elif now is not None and now.has_content_of(goal):
        op = Op.CHMOD
    else:
        op = Op.PUT if goal.kind is Kind.FILE else Op.LINK
    return Change(Side(side), op, path, goal, now)
