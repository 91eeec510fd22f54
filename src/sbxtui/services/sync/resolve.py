"""Conflicts decided: for one side, for both beside each other, or by merging two texts.

Both sides were looked at before, and the caller holds `Ancestors.cycle`. What loses its place goes to the trash of its
side; what was decided in one call is taken back by one `undo`.
"""

from __future__ import annotations

import asyncio
import secrets

from sbxguest.tree import Outcome, Source
from sbxguest.tree.entry import new_digest
from sbxtui.core.errors import Conflict, Unsupported
from sbxtui.core.text import counted, harmless_line
from sbxtui.guest.treebodies import Step
from sbxtui.services.sync.compare import MAX_TEXT_BYTES, content_here, content_there
from sbxtui.services.sync.intake import Intake
from sbxtui.services.sync.mergefile import common_version, merged_text
from sbxtui.services.sync.model import Change, Difference, Kind, Mode, OnConflict, Op, Path, Side, State
from sbxtui.services.sync.pair import Outcomes, Pair
from sbxtui.services.sync.picture import part_of, scope_of, within
from sbxtui.services.sync.plan import plan
from sbxtui.services.sync.status import shown
from sbxtui.services.sync.transfer import size_of, wire_op

_WORD = "resolve"
_COPY_WORD = b"sandbox"
_MAX_NAME_BYTES = 255


async def resolve(
    pair: Pair, intake: Intake | None, path: Path, winner: Side, *, outcomes: Outcomes | None = None
) -> Outcomes:
    """Give both sides what one has at a path and below.

    Args:
        pair: The two folders.
        intake: Takes the sandbox's version in; not needed where this machine's wins.
        path: What is decided.
        winner: Whose version stays.
        outcomes: Of what was done before in the same call.
    """
    loser = pair.there if winner is Side.LOCAL else pair.local
    scope = scope_of({path}, pair.base, pair.local.states, pair.there.states)
    base = within(pair.base, scope)
    for one in scope:
        if one == path or one.startswith(path + b"/"):
            # As if the loser had changed nothing.
            base.pop(one, None)
            if (entry := loser.states.get(one)) is not None:
                base[one] = entry
    mode = Mode.PUSH if winner is Side.LOCAL else Mode.TWO_WAY
    local, there = part_of(pair.local.listing(), scope), part_of(pair.there.listing(), scope)
    target = Side.GUEST if winner is Side.LOCAL else Side.LOCAL
    changes = [change for change in plan(base, local, there, mode).changes if change.side is target]
    if intake is None:
        assert target is Side.GUEST, "this machine's folder is changed through an intake only"
    if target is Side.GUEST or intake is None:
        outcomes = await pair.push(changes, lambda done, size_bytes: None, word=_WORD, outcomes=outcomes)
    else:
        outcomes = await pair.pull(changes, intake, lambda size_bytes: None, word=_WORD, outcomes=outcomes)
    await pair.adopt(pair.compare())
    return outcomes


async def decide(pair: Pair, intake: Intake | None, path: Path, policy: OnConflict) -> Outcomes:
    """Decide a conflict as somebody said beforehand.

    Raises:
        Conflict: It cannot be decided like that; it stays. SbxError: The sandbox does not answer.
    """
    if policy is OnConflict.LOCAL:
        return await resolve(pair, intake, path, Side.LOCAL)
    if intake is None or policy is OnConflict.STOP:
        raise Unsupported(f"`{_line(path)}` stays in conflict")
    return await (merge(pair, intake, path) if policy is OnConflict.MERGE else resolve(pair, intake, path, Side.GUEST))


async def keep_both(pair: Pair, intake: Intake, path: Path) -> Outcomes:
    """Keep this machine's version at the path, and the sandbox's beside it as `NAME.sandbox.EXT`, on both sides.

    Raises:
        Unsupported: The sandbox's version is no file or link. SbxError: The sandbox does not answer.
    """
    entry, outcomes = pair.there.states.get(path), Outcomes()
    if entry is None or entry.is_dir:
        raise Unsupported(
            f"the sandbox has no file at `{_line(path)}` that could be kept beside this machine's",
            hint="decide for one side",
        )
    copy = _free_name(pair, path)
    if not await _copy_there(pair, path, copy, entry):
        outcomes.moved_on.add(path)
        return outcomes
    change = Change(Side.LOCAL, _making(entry), copy, entry, None)
    await pair.pull([change], intake, lambda size_bytes: None, word=_WORD, outcomes=outcomes)
    if copy not in outcomes.done:
        return outcomes
    return await resolve(pair, intake, path, Side.LOCAL, outcomes=outcomes)


async def _copy_there(pair: Pair, path: Path, copy: Path, entry: State) -> bool:
    """Give the sandbox's version a second name there; False if it is another one by now."""
    size_bytes = size_of(pair.there.states.get(path))
    change = Change(Side.GUEST, _making(entry), copy, entry, None)
    source = Source.KNOWN if change.op is Op.PUT else Source.INLINE
    op = wire_op(change, {}, size_bytes=size_bytes, source=source, known_path=path if change.op is Op.PUT else b"")
    (result,) = await pair.guest.batch(f"both-{secrets.token_hex(16)}", [Step(op)])
    if result.outcome is not Outcome.DONE:
        return False
    stamp = result.state.stamp if result.state is not None else None
    pair.there.put(copy, entry.with_stamp(stamp))
    return True


def _free_name(pair: Pair, path: Path) -> Path:
    """A name beside a path that neither side has."""
    folder, slash, name = path.rpartition(b"/")
    stem, dot, ending = name.rpartition(b".")
    if not stem:
        stem, dot, ending = name, b"", b""
    taken = (pair.local.states, pair.there.states, pair.local.notes, pair.there.notes)
    number = 1
    while True:
        word = _COPY_WORD if number == 1 else b"%s-%d" % (_COPY_WORD, number)
        room = _MAX_NAME_BYTES - len(word) - len(dot + ending) - 1
        found = folder + slash + stem[:room] + b"." + word + dot + ending
        if not any(found in known for known in taken):
            return found
        number += 1


def _making(entry: State) -> Op:
    return Op.PUT if entry.kind is Kind.FILE else Op.LINK


async def merge(pair: Pair, intake: Intake, path: Path) -> Outcomes:
    """Give both sides a text with the changes of both, as `git merge-file` makes it.

    Raises:
        Unsupported: They cannot be merged: no texts, no git, or what both began with is not known any more.
        Conflict: Both changed the same lines. Nothing was changed in either case.
    """
    conflict, outcomes = pair.conflicts[path], Outcomes()
    local, base, guest = _files(conflict)
    mine = await content_here(pair.folder, path, MAX_TEXT_BYTES)
    theirs = await content_there(pair.guest, path, guest.content, MAX_TEXT_BYTES)
    if mine is None or theirs is None or b"\0" in mine + theirs:
        raise Unsupported(f"`{_line(path)}` is no text, or too large to be merged", hint="decide for one side, or both")
    if _digest(mine) != local.content or _digest(theirs) != guest.content:
        outcomes.moved_on.add(path)
        return outcomes
    before = await asyncio.to_thread(pair.ancestors.text, base.content)
    if before is None:
        before = await asyncio.to_thread(intake.trashed, base.content, MAX_TEXT_BYTES)
    if before is None:
        before = await common_version(pair.folder.root.path, path, base.content)
    if before is None:
        raise Unsupported(
            f"what both sides began with at `{_line(path)}` is not kept, so it cannot be merged",
            hint="it is kept where conflicts are merged by themselves, or in git; decide for one side, or both",
        )
    text, conflicts = await merged_text(mine, before, theirs)
    if conflicts:
        raise Conflict(
            f"both sides changed the same lines of `{_line(path)}` in {counted(conflicts, 'place')}",
            hint="decide for one side, or both",
        )
    bit = local.is_executable if local.is_executable != base.is_executable else guest.is_executable
    goal = State(Kind.FILE, _digest(text), bit)
    change = Change(Side.LOCAL, Op.CHMOD if goal.has_content_of(local) else Op.PUT, path, goal, local)
    if goal != local:
        await pair.write_here(change, text, intake, outcomes, word=_WORD)
    if goal != local and path not in outcomes.done:
        return outcomes
    return await resolve(pair, intake, path, Side.LOCAL, outcomes=outcomes)


def _files(conflict: Difference) -> tuple[State, State, State]:
    sides = (conflict.local, conflict.base, conflict.guest)
    files = [one for one in sides if one is not None and one.kind is Kind.FILE]
    if len(files) != len(sides):
        raise Unsupported(
            f"`{_line(conflict.path)}` is not one text that both sides changed", hint="decide for one side, or both"
        )
    return files[0], files[1], files[2]


def _digest(content: bytes) -> bytes:
    digest = new_digest()
    digest.update(content)
    return digest.digest()


def _line(path: Path) -> str:
    return harmless_line(shown(path))
