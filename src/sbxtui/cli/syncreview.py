"""`sync pull` and `diff`: what the sandbox changed, looked at and taken over by a person."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path as FilePath

from sbxtui.cli.call import Call
from sbxtui.cli.output import stdout_is_terminal
from sbxtui.core.errors import Conflict, Incomplete, UsageError
from sbxtui.core.text import counted, harmless_line, short_size
from sbxtui.services.sync.branch import commit_on_branch
from sbxtui.services.sync.compare import patch_of, whole_patch_of
from sbxtui.services.sync.model import Path
from sbxtui.services.sync.pair import Outcomes, Pair
from sbxtui.services.sync.review import Reviewed, check_halts, only_seen, review, take_over
from sbxtui.services.sync.status import shown
from sbxtui.services.sync.views import ChangeView

_NAMED = 5


async def pull(call: Call) -> int:
    """Take over what the sandbox changed, after a look at it."""
    row = await call.services.sandboxes.find(call.args.sandbox)
    paths = tree_paths(call.args.paths)
    async with call.services.syncs.reviewing(row) as (pair, intake):
        reviewed = await review(pair, paths)
        views = [ChangeView.of(change, pair.there.states) for change in reviewed.changes]
        check_halts(row.name, reviewed, accepts_deletes=call.args.accept_deletes)
        if call.args.dry_run or not views:
            return _tell(call, row.name, reviewed, views, outcomes=None)
        if call.args.as_branch or call.args.as_patch:
            return await _put_aside(call, row.name, pair, reviewed, views)
        _show(call, views, is_note=True)
        if call.args.yes:
            outcomes = await take_over(pair, intake, reviewed, _progress(call))
            return _tell(call, row.name, reviewed, views, outcomes=outcomes)
    # Nobody else waits for as long as a person thinks.
    await call.confirm(f"take over {counted(len(views), 'change')} into {pair.folder.root.path}", consequences=[])
    async with call.services.syncs.reviewing(row) as (pair, intake):
        again = await review(pair, paths)
        check_halts(row.name, again, accepts_deletes=call.args.accept_deletes)
        agreed, changed = only_seen(reviewed, again)
        outcomes = await take_over(pair, intake, agreed, _progress(call))
        outcomes.moved_on |= changed
        return _tell(call, row.name, agreed, views, outcomes=outcomes)


async def _put_aside(call: Call, name: str, pair: Pair, reviewed: Reviewed, views: Sequence[ChangeView]) -> int:
    """Keep what the sandbox changed as a branch or a patch: no file of the folder is touched."""
    place = ""
    if call.args.as_branch:
        commit = await commit_on_branch(pair, reviewed.changes, call.args.as_branch, author=name)
        place = f"branch {call.args.as_branch} ({commit[:12]})"
    if call.args.as_patch:
        lines = [line for change in reviewed.changes for line in await whole_patch_of(pair, change)]
        data = "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape")
        await asyncio.to_thread(_write_new, FilePath(call.args.as_patch), data)
        place = f"{place} and {call.args.as_patch}" if place else call.args.as_patch
    call.out.note(f"{counted(len(views), 'change')} put into {harmless_line(place)}; the folder is as it was")
    return _tell(call, name, reviewed, views, outcomes=None)


def _write_new(path: FilePath, data: bytes) -> None:
    try:
        with path.open("xb") as file:
            file.write(data)
    except FileExistsError as exc:
        raise Conflict(f"`{path}` is there already", hint="name another file") from exc
    except OSError as exc:
        raise UsageError(f"`{path}` cannot be written: {exc.strerror}", hint="name another file") from exc


async def diff(call: Call) -> int:
    """What the sandbox changed, as a patch."""
    row = await call.services.sandboxes.find(call.args.sandbox)
    async with call.services.syncs.reviewing(row) as (pair, _):
        reviewed = await review(pair, tree_paths(call.args.paths))
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
                "failed": named(failed),
            }
        )
    elif outcomes is None:
        _show(call, views, is_note=False)
        if not views:
            call.out.note("the sandbox changed nothing that is not here already")
    else:
        call.out.note(f"{counted(len(outcomes.done), 'change')} taken over; `sbx sync undo {name}` takes back")
    if conflicts and not failed:
        raise Incomplete(
            f"changed on both sides and left alone: {counted(len(conflicts), 'path')}",
            hint=f"sbx sync conflicts {name}",
            details={"conflicts": conflicts},
        )
    raise_failed(failed)
    return 0


def _show(call: Call, views: Sequence[ChangeView], *, is_note: bool) -> None:
    tell = call.out.note if is_note else call.out.line
    for view in views:
        mark = "  ← may be run by this machine" if view.may_run else ""
        tell(f"{view.word:8} {view.path_text}{view.size_words}{mark}")


def raise_failed(failed: dict[Path, str]) -> None:
    """Tell that some paths were not changed, if there are any."""
    if failed:
        raise Incomplete(f"left as they are: {first_of(failed)}", details={"failed": named(failed)})


def named(failed: dict[Path, str]) -> list[dict[str, str]]:
    """Paths that were not changed, and why, for scripts."""
    return [{"path": shown(path), "code": code} for path, code in sorted(failed.items())]


def first_of(failed: dict[Path, str]) -> str:
    """The first of them, for people."""
    words = ", ".join(f"{harmless_line(shown(path))} ({code})" for path, code in sorted(failed.items())[:_NAMED])
    return f"{words} and {len(failed) - _NAMED} more" if len(failed) > _NAMED else words


def tree_paths(words: Sequence[str]) -> list[Path]:
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
