"""Taking back what a sync changed, last change first, as far as nobody changed the same since.

What was taken back must not be overwritten by the next comparison, nor overwrite anything itself:

- What a pull brought in: of a two-way sync both sides still agree on it, so that taking it back here is a change like
  any other, and goes to the sandbox. Else both agree on what was there before, and it is the sandbox's change again.
- What was carried over or decided: both agree on nothing there any more. Two versions are a conflict then.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable, Mapping, Sequence

from sbxguest.tree import Outcome, Result, Source, Stamp, State
from sbxtui.guest.treebodies import Step as GuestStep
from sbxtui.services.sync.intake import Intake
from sbxtui.services.sync.made import CHANGED_MEANWHILE
from sbxtui.services.sync.model import Change, Kind, Mode, Op, Path, Side
from sbxtui.services.sync.pair import Outcomes, Pair
from sbxtui.services.sync.transfer import BATCH_OPS, size_of, wire_op
from sbxtui.store.ancestors import Agreed, Batch, Step

_EVERY_BATCH = 1000


def is_carried_on(pair: Pair, batch: Batch) -> bool:
    """Whether taking the batch back here is carried over to the sandbox afterwards."""
    return batch.word == "pull" and pair.mode is Mode.TWO_WAY


def batches_of(pair: Pair, *, is_pushed: bool) -> list[Batch]:
    """What was carried over to the sandbox, or what pulls and decisions changed; newest first."""
    return [one for one in pair.ancestors.batches(limit=_EVERY_BATCH) if (one.word == "push") is is_pushed]


def last_batch(found: Iterable[Batch], *, is_left_over: bool = False) -> Batch | None:
    """The batch to take back next; or the one of which something could not be taken back before."""
    return next((one for one in found if one.is_left_over is is_left_over), None)


async def undo(pair: Pair, intake: Intake, batch: Batch) -> Outcomes:
    """Take a batch back; what cannot be taken back stays as it is, and in the batch, which is left over then.

    The caller holds `Ancestors.cycle`.

    Raises:
        SbxError: The sandbox does not answer; what was taken back before is written down.
    """
    outcomes = Outcomes()
    left = dict(enumerate(batch.steps))
    for side in (Side.LOCAL, Side.GUEST):
        wanted = {number: one for number, one in reversed(left.items()) if one.side == side.value}
        steps = list(wanted.values())
        if not steps:
            continue
        # Before anything is done: if this ends half way, what differs is a conflict.
        held = {} if is_carried_on(pair, batch) else await pair.forget(_with_content(steps))
        results = await _taken_back(pair, intake, side, steps)
        after: dict[Path, State | None] = {}
        for (number, step), result in zip(wanted.items(), results, strict=True):
            if result is not None and result.outcome is Outcome.DONE:
                outcomes.done.append(step.path)
                after[step.path] = result.state if step.before is not None else None
                del left[number]
            else:
                outcomes.failed[step.path] = (result.code if result else "") or CHANGED_MEANWHILE
        await asyncio.to_thread(pair.ancestors.keep_steps, batch.number, list(left.values()))
        await pair.agree_on(_agreed(pair, batch, after, held, outcomes))
    if left:
        await asyncio.to_thread(pair.ancestors.leave_over, batch.number)
    return outcomes


def _with_content(steps: Iterable[Step]) -> set[Path]:
    """Paths of steps that changed more than a folder or an executable bit: these are no two versions."""
    return {one.path for one in steps if _inverse(one).op in (Op.PUT, Op.LINK, Op.DELETE)}


def _agreed(
    pair: Pair, batch: Batch, after: Mapping[Path, State | None], held: Mapping[Path, Agreed], outcomes: Outcomes
) -> dict[Path, Agreed | None]:
    """What both sides agree on afterwards: as before on all that stayed; see above on the rest."""
    agreed: dict[Path, Agreed | None] = {path: one for path, one in held.items() if path not in after}
    if batch.word == "pull" and not is_carried_on(pair, batch):
        for path, state in after.items():
            if path not in outcomes.failed:
                agreed[path] = None if state is None else Agreed(state, _as_elsewhere(state))
    return agreed


async def _taken_back(pair: Pair, intake: Intake, side: Side, steps: Sequence[Step]) -> list[Result | None]:
    """What became of each step of one side."""
    changes = [_inverse(one) for one in steps]
    known = {one.path: one.after for one in steps if one.after is not None}
    if side is Side.LOCAL:
        return [one.result for one in await asyncio.to_thread(intake.restore, changes, known)]
    await pair.greet()
    sent = [
        GuestStep(wire_op(change, known, size_bytes=size_of(step.before), source=_source_of(change)))
        for change, step in zip(changes, steps, strict=True)
    ]
    results: list[Result | None] = []
    for start in range(0, len(sent), BATCH_OPS):
        part = sent[start : start + BATCH_OPS]
        made = {one.seq: one for one in await pair.guest.batch(f"undo-{secrets.token_hex(16)}", part)}
        results += [made.get(seq) for seq in range(len(part))]
    return results


def _source_of(change: Change) -> Source:
    return Source.KNOWN if change.op is Op.PUT else Source.INLINE


def _as_elsewhere(state: State) -> State:
    """The same on the other side: of its stamp only the size is known there, which proves nothing."""
    return state.with_stamp(Stamp(size_of(state), 0, 0, 0, is_racy=True))


def _inverse(step: Step) -> Change:
    """What undoes a step."""
    side, path, goal, now = step.side, step.path, step.before, step.after
    if goal is None:
        op = Op.RMDIR if now is not None and now.is_dir else Op.DELETE
    elif goal.is_dir:
        op = Op.MKDIR
    elif now is not None and now.has_content_of(goal):
        op = Op.CHMOD
    else:
        op = Op.PUT if goal.kind is Kind.FILE else Op.LINK
    return Change(Side(side), op, path, goal, now)
