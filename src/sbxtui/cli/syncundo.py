"""`sync undo`: what a sync changed last, taken back."""

from __future__ import annotations

import time

from sbxtui.cli.call import Call
from sbxtui.cli.syncreview import first_of, named
from sbxtui.core.errors import Conflict, Incomplete, NotFound
from sbxtui.core.text import counted, harmless_line
from sbxtui.services.sync.pair import Outcomes, Pair
from sbxtui.services.sync.status import shown
from sbxtui.services.sync.undo import batches_of, is_carried_on, last_batch, undo
from sbxtui.store.ancestors import Batch

_SHOWN = 10


async def undo_(call: Call) -> int:
    """Take back what the last pull or decision changed, or what was carried over last."""
    row = await call.services.sandboxes.find(call.args.sandbox)
    async with call.services.syncs.reviewing(row) as (pair, _):
        batch = _last_batch(call, row.name, pair)
    words = _batch_words(batch)
    if call.args.dry_run:
        call.out.note(words)
        call.out.result(_batch_json(batch))
        return 0
    # Nobody else waits for as long as a person thinks.
    await call.confirm("take it back", consequences=[words, *_step_words(batch)])
    async with call.services.syncs.reviewing(row) as (pair, intake):
        if _last_batch(call, row.name, pair) != batch:
            raise Conflict("something else was changed meanwhile: nothing was taken back", hint="look at it again")
        outcomes = await undo(pair, intake, batch)
    call.out.result({**_batch_json(batch), "undone": len(outcomes.done), "failed": named(outcomes.failed)})
    _raise_left(row.name, batch, outcomes)
    call.out.note(f"taken back: {words}")
    if is_carried_on(pair, batch):
        call.out.note("the sync carries that over to the sandbox, too")
    elif batch.word != "pull":
        call.out.note(f"where both sides differ now, they are in conflict: `sbx sync resolve {row.name} PATH` decides")
    return 0


def _last_batch(call: Call, name: str, pair: Pair) -> Batch:
    """The batch to take back: the last one, or, asked for, what could not be taken back of an earlier one."""
    is_pushed, is_again = call.args.pushed, call.args.again
    found = batches_of(pair, is_pushed=is_pushed)
    if (batch := last_batch(found, is_left_over=is_again)) is not None:
        return batch
    what = "carried over" if is_pushed else "took over, removed or decided"
    raise NotFound(
        f"nothing that the sync of `{name}` {what} {'was left when it was' if is_again else 'can be'} taken back",
        hint=f"`sbx sync undo {name} --again` tries what could not be taken back before" if found else "",
    )


def _raise_left(name: str, batch: Batch, outcomes: Outcomes) -> None:
    if not outcomes.failed:
        return
    taken_back = f"{len(outcomes.done)} of {counted(len(batch.steps), 'change')} taken back"
    raise Incomplete(
        f"{taken_back}; left as they are: {first_of(outcomes.failed)}",
        hint=f"`sbx sync undo {name} --again` tries these once more; without it, what was changed before is next",
        details={"failed": named(outcomes.failed)},
    )


def _batch_words(batch: Batch) -> str:
    age_s = max(0, int(time.time() - batch.at_s))
    return f"{batch.word} of {age_s} s ago, {counted(len(batch.steps), 'change')}"


def _step_words(batch: Batch) -> list[str]:
    return [f"  {harmless_line(shown(step.path))}" for step in batch.steps[:_SHOWN]]


def _batch_json(batch: Batch) -> dict[str, object]:
    return {
        "batch": batch.number,
        "word": batch.word,
        "steps": [{"side": step.side, "path": shown(step.path)} for step in batch.steps],
    }
