"""`sync pull`, `diff`, `resolve` and `undo`: what the sandbox changed, looked at and decided on by a person."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence

from sbxtui.cli.call import Call
from sbxtui.cli.output import stdout_is_terminal
from sbxtui.core.errors import Conflict, Incomplete, NotFound, UsageError
from sbxtui.core.text import harmless_line, short_size
from sbxtui.services.sync.compare import patch_of
from sbxtui.services.sync.model import Path, Side
from sbxtui.services.sync.pair import Outcomes, Pair
from sbxtui.services.sync.review import Reviewed, only_seen, resolve, review, take_over
from sbxtui.services.sync.status import shown
from sbxtui.services.sync.undo import is_carried_on, undo
from sbxtui.services.sync.views import ChangeView
from sbxtui.store.ancestors import Batch

_SHOWN = 10
_DELETES_HALT = "many_local_deletes"


async def pull(call: Call) -> int:
    """Take over what the sandbox changed, after a look at it."""
    row = await call.services.sandboxes.find(call.args.sandbox)
    paths = _paths(call.args.paths)
    async with call.services.syncs.reviewing(row) as (pair, intake):
        reviewed = await review(pair, paths)
        views = [ChangeView.of(change, pair.there.states) for change in reviewed.changes]
        _check_halts(call, row.name, reviewed)
        if call.args.dry_run or not views:
            return _tell(call, row.name, reviewed, views, outcomes=None)
        _show(call, views, is_note=True)
        if call.args.yes:
            outcomes = await take_over(pair, intake, reviewed, _progress(call))
            return _tell(call, row.name, reviewed, views, outcomes=outcomes)
    # Nobody else waits for as long as a person thinks.
    call.confirm(f"take over {len(views)} changes into {pair.folder.root.path}", consequences=[])
    async with call.services.syncs.reviewing(row) as (pair, intake):
        again = await review(pair, paths)
        _check_halts(call, row.name, again)
        agreed, changed = only_seen(reviewed, again)
        outcomes = await take_over(pair, intake, agreed, _progress(call))
        outcomes.moved_on |= changed
        return _tell(call, row.name, agreed, views, outcomes=outcomes)


async def diff(call: Call) -> int:
    """What the sandbox changed, as a patch."""
    row = await call.services.sandboxes.find(call.args.sandbox)
    async with call.services.syncs.reviewing(row) as (pair, _):
        reviewed = await review(pair, _paths(call.args.paths))
        if call.out.is_json:
            call.out.json([ChangeView.of(change, pair.there.states).as_json() for change in reviewed.changes])
            return 0
        is_terminal = stdout_is_terminal()
        for change in reviewed.changes:
            for line in await patch_of(pair, change):
                if is_terminal:
                    call.out.line(line)
                else:
                    # A patch that another program applies must keep every byte.
                    call.out.raw(line.encode("utf-8", "surrogateescape") + b"\n")
    return 0


async def resolve_(call: Call) -> int:
    """Decide a conflict for one side."""
    if call.args.local is call.args.guest:
        raise UsageError("one side has to win", hint="add --local or --guest")
    winner = Side.LOCAL if call.args.local else Side.GUEST
    row = await call.services.sandboxes.find(call.args.sandbox)
    async with call.services.syncs.reviewing(row) as (pair, intake):
        await review(pair)
        paths = _paths(call.args.paths)
        missing = [path for path in paths if path not in pair.conflicts]
        if missing:
            raise NotFound(
                f"`{harmless_line(shown(missing[0]))}` is not in conflict",
                hint=f"`sbx sync conflicts {row.name}` lists what is",
            )
        failed: dict[Path, str] = {}
        for path in paths:
            outcomes = await resolve(pair, intake, path, winner)
            failed.update(outcomes.failed)
            failed.update(dict.fromkeys(outcomes.moved_on, "changed_meanwhile"))
    call.out.result({"resolved": [shown(path) for path in paths if path not in failed], "failed": _named(failed)})
    _raise_failed(failed)
    call.out.note(f"{len(paths)} settled; `sbx sync undo {row.name}` takes the last back")
    return 0


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
    call.confirm("take it back", consequences=[words, *_step_words(batch)])
    async with call.services.syncs.reviewing(row) as (pair, intake):
        if _last_batch(call, row.name, pair) != batch:
            raise Conflict("something else was changed meanwhile: nothing was taken back", hint="look at it again")
        outcomes = await undo(pair, intake, batch)
    call.out.result({**_batch_json(batch), "failed": _named(outcomes.failed)})
    _raise_failed(outcomes.failed)
    call.out.note(f"taken back: {words}")
    if is_carried_on(pair, batch):
        call.out.note("the sync carries that over to the sandbox, too")
    elif batch.word != "pull":
        call.out.note(f"where both sides differ now, they are in conflict: `sbx sync resolve {row.name} PATH` decides")
    return 0


def _last_batch(call: Call, name: str, pair: Pair) -> Batch:
    is_pushed = call.args.pushed
    for one in pair.ancestors.batches(limit=1000):
        if (one.word == "push") is is_pushed:
            return one
    what = "carried over" if is_pushed else "took over, removed or decided"
    raise NotFound(f"nothing that the sync of `{name}` {what} can be taken back")


def _check_halts(call: Call, name: str, reviewed: Reviewed) -> None:
    halts = [halt for halt in reviewed.halts if not (call.args.accept_deletes and halt.code == _DELETES_HALT)]
    if not halts:
        return
    is_for_deletes = all(halt.code == _DELETES_HALT for halt in halts)
    again = f"sbx sync pull {name} --accept-deletes" if is_for_deletes else f"sbx sync resume {name}"
    raise Conflict(
        f"nothing was taken over: {'; '.join(halt.words for halt in halts)}",
        hint=f"if that is right: `{again}`",
        details={"halts": [halt.code for halt in halts]},
    )


def _tell(call: Call, name: str, reviewed: Reviewed, views: Sequence[ChangeView], *, outcomes: Outcomes | None) -> int:
    failed = dict(reviewed.refused)
    if outcomes is not None:
        failed.update(outcomes.failed)
        failed.update(dict.fromkeys((*outcomes.moved_on, *outcomes.again), "changed_meanwhile"))
    conflicts = [shown(one.path) for one in reviewed.conflicts]
    if call.out.is_json:
        call.out.json(
            {
                "changes": [view.as_json() for view in views],
                "taken_over": len(outcomes.done) if outcomes else 0,
                "conflicts": conflicts,
                "failed": _named(failed),
            }
        )
    elif outcomes is None:
        _show(call, views, is_note=False)
        if not views:
            call.out.note("the sandbox changed nothing that is not here already")
    else:
        call.out.note(f"{len(outcomes.done)} changes taken over; `sbx sync undo {name}` takes them back")
    if conflicts and not failed:
        raise Incomplete(
            f"{len(conflicts)} paths were changed on both sides and left as they are",
            hint=f"sbx sync conflicts {name}",
            details={"conflicts": conflicts},
        )
    _raise_failed(failed)
    return 0


def _show(call: Call, views: Sequence[ChangeView], *, is_note: bool) -> None:
    tell = call.out.note if is_note else call.out.line
    for view in views:
        mark = "  ← may be run by this machine" if view.may_run else ""
        tell(f"{view.word:8} {view.path_text}{view.size_words}{mark}")


def _raise_failed(failed: dict[Path, str]) -> None:
    if failed:
        first = ", ".join(f"{harmless_line(shown(path))} ({code})" for path, code in list(failed.items())[:5])
        raise Incomplete(f"left as they are: {first}", details={"failed": _named(failed)})


def _named(failed: dict[Path, str]) -> list[dict[str, str]]:
    return [{"path": shown(path), "code": code} for path, code in sorted(failed.items())]


def _paths(words: Sequence[str]) -> list[Path]:
    """Paths as a person writes them, relative to the synced folder."""
    paths = [os.fsencode(os.path.normpath(word)) for word in words]
    for path in paths:
        if path.startswith((b"/", b"..")):
            raise UsageError(
                f"`{harmless_line(shown(path))}` is not below the synced folder", hint="write it relative to that"
            )
    return [path for path in paths if path != b"."]


def _progress(call: Call) -> Callable[[int], None]:
    total, told_s = 0, time.monotonic()

    def count(size_bytes: int) -> None:
        nonlocal total, told_s
        total += size_bytes
        if time.monotonic() - told_s > 1:
            told_s = time.monotonic()
            call.out.progress(f"{short_size(total)} taken over")

    return count


def _batch_words(batch: Batch) -> str:
    age_s = max(0, int(time.time() - batch.at_s))
    return f"{batch.word} of {age_s} s ago, {len(batch.steps)} changes"


def _step_words(batch: Batch) -> list[str]:
    return [f"  {harmless_line(shown(step.path))}" for step in batch.steps[:_SHOWN]]


def _batch_json(batch: Batch) -> dict[str, object]:
    return {
        "batch": batch.number,
        "word": batch.word,
        "steps": [{"side": step.side, "path": shown(step.path)} for step in batch.steps],
    }
