"""`sync resolve`: conflicts, decided by a person."""

from __future__ import annotations

from collections.abc import Sequence

from sbxtui.cli.call import Call
from sbxtui.cli.syncreview import named, raise_failed, tree_paths
from sbxtui.core.errors import Conflict, NotFound, UsageError
from sbxtui.core.text import counted, harmless_line
from sbxtui.services.sync.intake import Intake
from sbxtui.services.sync.model import Path, Side
from sbxtui.services.sync.pair import Outcomes, Pair
from sbxtui.services.sync.resolve import keep_both, merge, resolve
from sbxtui.services.sync.review import review
from sbxtui.services.sync.status import shown

_MERGE, _BOTH = "merge", "both"


async def resolve_(call: Call) -> int:
    """Decide conflicts."""
    decision = _decision(call)
    row = await call.services.sandboxes.find(call.args.sandbox)
    async with call.services.syncs.reviewing(row) as (pair, intake):
        await review(pair)
        paths = tree_paths(call.args.paths)
        # What only the sandbox changed can be rejected, too.
        known = {*pair.conflicts, *(pair.guest_changes if decision == Side.LOCAL.value else ())}
        missing = [path for path in paths if path not in known]
        if missing:
            raise NotFound(
                f"`{harmless_line(shown(missing[0]))}` is not in conflict",
                hint=f"`sbx sync conflicts {row.name}` lists what is",
            )
        failed = await _decide_all(call, pair, intake, paths, decision)
        resolved = [shown(path) for path in paths if path not in pair.conflicts]
    call.out.result({"resolved": resolved, "failed": named(failed)})
    raise_failed(failed)
    call.out.note(f"{counted(len(paths), 'path')} settled; `sbx sync undo {row.name}` takes the last back")
    return 0


def _decision(call: Call) -> str:
    """`local`, `guest`, `both` or `merge`.

    Raises:
        UsageError: None is asked for, or several.
    """
    args = call.args
    flags = {Side.LOCAL.value: args.local, Side.GUEST.value: args.guest, _MERGE: args.merge}
    decisions = {word for word, is_said in {**flags, str(args.keep): bool(args.keep)}.items() if is_said}
    if len(decisions) != 1:
        raise UsageError("it must be said which version stays", hint="add --keep local, guest or both, or --merge")
    return decisions.pop()


async def _decide_all(call: Call, pair: Pair, intake: Intake, paths: Sequence[Path], decision: str) -> dict[Path, str]:
    """Decide each path; returns those of which it did not come to that, and why.

    Raises:
        Conflict: A single path cannot be decided that way. SbxError: The sandbox does not answer.
    """
    failed: dict[Path, str] = {}
    for path in paths:
        try:
            outcomes = await _decide(pair, intake, path, decision)
        except Conflict as exc:
            if len(paths) == 1 or "guest_code" in exc.details:
                raise
            call.out.note(f"note: {exc.message}")
            failed[path] = "undecided"
            continue
        failed.update(outcomes.failed)
        failed.update(dict.fromkeys((*outcomes.moved_on, *outcomes.again), "changed_meanwhile"))
    return failed


async def _decide(pair: Pair, intake: Intake, path: Path, decision: str) -> Outcomes:
    if decision == _BOTH:
        return await keep_both(pair, intake, path)
    if decision == _MERGE:
        return await merge(pair, intake, path)
    return await resolve(pair, intake, path, Side(decision))
