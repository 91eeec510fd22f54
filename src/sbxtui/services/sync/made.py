"""What became of one step of a plan."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sbxguest.tree import Outcome, Result, State
from sbxtui.services.sync.model import Change, Path, Side
from sbxtui.services.sync.outcomes import Outcomes
from sbxtui.services.sync.picture import Picture
from sbxtui.store.ancestors import Step

# A file that was changed after it was looked at: the next look finds it.
CHANGED_MEANWHILE = "changed_meanwhile"
# Asked once for each file of a tree.
_DONE = Outcome.DONE


class Made(NamedTuple):
    """What became of a step: the change, and the result; None if it was not even tried, because its file changed."""

    change: Change
    result: Result | None


def taken_in(made: Sequence[Made], side: Side, picture: Picture, outcomes: Outcomes) -> tuple[list[Change], list[Step]]:
    """Note what became of a batch, in its side's picture and among the outcomes; what was done, and how to undo it.

    What was only added to the sandbox may be removed by anybody, so that it has no step.
    """
    is_here = side is Side.LOCAL
    if not is_here and (news := _as_wanted(made)) is not None and picture.put_new(news):
        return [change for change, _ in made], []
    done: list[Change] = []
    steps: list[Step] = []
    for change, result in made:
        path = change.path
        if result is None or result.code == "wrong_content":
            outcomes.again.add(path)
        elif result.outcome is _DONE:
            # A path may be changed twice: a file goes, a folder comes.
            before, now = picture.states.get(path), reached(change, result.state)
            picture.put(path, now)
            if before is not None or is_here:
                steps.append(Step(side.value, path, before, now))
            done.append(change)
        elif result.outcome is Outcome.MISMATCH:
            outcomes.moved_on.add(path)
        else:
            outcomes.failed[path] = result.code or CHANGED_MEANWHILE
    return done, steps


def reached(change: Change, found: State | None) -> State | None:
    """What stands at a path after a change was made there: what was wanted, with the stamp it got."""
    if change.entry is None:
        return None
    if found == change.entry:
        return found
    return change.entry.with_stamp(None if found is None else found.stamp)


def _as_wanted(made: Iterable[Made]) -> dict[Path, State] | None:
    """What stands where now, if all of it was made just as it was to be; None if there is anything else among it."""
    found: dict[Path, State] = {}
    for change, result in made:
        state = None if result is None or result.outcome is not _DONE else result.state
        if state is not None and state == change.entry and change.path not in found:
            found[change.path] = state
        else:
            return None
    return found
