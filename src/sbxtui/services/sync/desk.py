"""A sandbox's sync as a person looks at it and decides on it, one decision at a time: for faces that draw."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

from sbxtui.core.errors import Conflict, NotFound
from sbxtui.core.model import Registration
from sbxtui.home import Home
from sbxtui.services.sync.compare import patch_of
from sbxtui.services.sync.intake import Intake
from sbxtui.services.sync.made import CHANGED_MEANWHILE
from sbxtui.services.sync.model import Change, Difference, Mode, Op, Path, Side, ancestors
from sbxtui.services.sync.pair import Outcomes, Pair
from sbxtui.services.sync.resolve import keep_both, merge, resolve
from sbxtui.services.sync.review import Reviewed, check_halts, is_asked, only_seen, review, take_over
from sbxtui.services.sync.spec import SyncSpec, local_root
from sbxtui.services.sync.status import shown
from sbxtui.services.sync.syncs import Syncs
from sbxtui.services.sync.undo import batches_of, last_batch, undo
from sbxtui.services.sync.views import ChangeView, ConflictView, SyncView
from sbxtui.store.ancestors import Batch
from sbxtui.store.doorbell import LOOKING_POLL_S, Listener
from sbxtui.store.links import Wanted

# Whether the process that acts on a link lives is not told by any bell.
_EVERY_S = 2.0
_CONFLICT = "conflict"
Settling = Callable[[Pair, Intake, Path], Awaitable[Outcomes]]


@dataclass(frozen=True, slots=True)
class Item:
    """A path the sandbox changed, or both sides did.

    Attributes:
        path: Its bytes.
        word: `new`, `edited`, `deleted`, `folder`, … or `conflict`.
        words: More of it: how large, or what both sides have.
        may_run: Whether it is a file this machine may run without being asked.
    """

    path: Path
    word: str
    words: str = ""
    may_run: bool = False

    @property
    def is_conflict(self) -> bool:
        """Whether a person has to choose a side."""
        return self.word == _CONFLICT


@dataclass(frozen=True, slots=True)
class Found:
    """What there is to decide on.

    Attributes:
        items: Conflicts, then what only the sandbox changed.
        refused: Paths that are never taken over, and the word for why.
        halts: In words, why a person has to look first; empty when nothing speaks against it.
        reviewed: What was seen, for `SyncDesk.accept`.
    """

    items: tuple[Item, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()
    halts: tuple[str, ...] = ()
    reviewed: Reviewed = field(default_factory=lambda: Reviewed((), (), (), {}))


@dataclass(frozen=True, slots=True)
class Decided:
    """What came of decisions: how many paths were changed, and those that stayed as they are, with why."""

    done: int = 0
    failed: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Undoable:
    """What can be taken back.

    Attributes:
        word: What it was.
        is_pushed: Whether it was carried over to the sandbox.
        is_left_over: Whether this is what could not be taken back before.
    """

    number: int
    word: str
    at_s: float
    paths: tuple[str, ...]
    is_pushed: bool
    is_left_over: bool = False


class SyncDesk:
    """Where the syncs of one context's sandboxes are looked at and decided on."""

    def __init__(self, home: Home, syncs: Syncs) -> None:
        self._home = home
        self._syncs = syncs

    async def follow(self, row: Registration) -> AsyncGenerator[SyncView | None, None]:
        """How the sync of a sandbox is, then at each change of that; None while there is none. Ends only when closed.

        No byte is sent to the sandbox.
        """
        told: list[SyncView | None] = []
        async with Listener(self._home, poll_s=LOOKING_POLL_S) as bell:
            while True:
                view = await asyncio.to_thread(self._view, row)
                if told != [view]:
                    told = [view]
                    yield view
                await bell.wait(_EVERY_S)

    async def status(self, row: Registration) -> SyncView | None:
        """How the sync of a sandbox is; None while there is none. No byte is sent to the sandbox."""
        return await asyncio.to_thread(self._view, row)

    def _view(self, row: Registration) -> SyncView | None:
        try:
            return SyncView.of(self._syncs.find(row))
        except NotFound:
            return None

    async def start(self, row: Registration, folder: str, mode: Mode) -> None:
        """Sync a folder of this machine with the sandbox's work folder; the runner keeps it so.

        Raises:
            UsageError: There is no such folder. Conflict, TimedOut: See `Syncs.detach`.
        """
        root = await asyncio.to_thread(local_root, folder)
        await self._syncs.detach(row, SyncSpec(root, "", mode))

    async def pause(self, row: Registration) -> None:
        """Carry nothing over for now."""
        await self._syncs.want(row, Wanted.PAUSED)

    async def resume(self, row: Registration, *, accepts_deletes: bool = False, accepts_large: bool = False) -> None:
        """Go on, with the runner where nobody acts on it; after a halt, compare anew and delete nothing.

        Args:
            row: Whose sync.
            accepts_deletes: Of a mirror that halted at its first comparison: it may delete what only the sandbox has.
            accepts_large: Of one that halted because that would send very much: it may.
        """
        link = await asyncio.to_thread(self._syncs.find, row)
        if link.status.get("halts"):
            await self._syncs.start_anew(row)
        if accepts_deletes:
            await self._syncs.accept_deletes(row)
        if accepts_large:
            await self._syncs.accept_large(row)
        link = await self._syncs.want(row, Wanted.RUNNING)
        if not link.is_served:
            await self._syncs.detach(row, SyncSpec.of(link))

    async def stop(self, row: Registration) -> None:
        """End it and forget what both sides agreed on; no file is touched."""
        await self._syncs.end(row)

    async def look(self, row: Registration) -> Found:
        """Look at both sides.

        Raises:
            NotFound: It has no sync. SbxError: One side cannot be looked at.
        """
        async with self._syncs.reviewing(row) as (pair, _):
            reviewed = await review(pair)
            disputes = await asyncio.to_thread(pair.ancestors.disputes)
            conflicts = [_conflict_item(ConflictView.of(one)) for one in disputes]
            changes = [_change_item(ChangeView.of(one, pair.there.states)) for one in reviewed.changes]
        refused = tuple((shown(path), code) for path, code in sorted(reviewed.refused.items()))
        return Found((*conflicts, *changes), refused, tuple(halt.words for halt in reviewed.halts), reviewed)

    async def patch(self, row: Registration, item: Item) -> list[str]:
        """What taking the sandbox's version of a path would change here, as the lines of a patch; not harmless.

        Raises:
            Conflict: It is another change by now. SbxError: The sandbox does not answer.
        """
        async with self._syncs.reviewing(row) as (pair, _):
            reviewed = await review(pair)
            changes = [_change_of(one) for one in pair.conflicts.values()] if item.is_conflict else reviewed.changes
            for change in changes:
                if change.path == item.path:
                    return list(await patch_of(pair, change))
        raise Conflict(f"`{shown(item.path)}` differs no more as it did", hint="look at both sides again")

    async def accept(
        self, row: Registration, found: Found, items: Sequence[Item], *, accepts_deletes: bool = False
    ) -> Decided:
        """Take the sandbox's version of what a person has seen; what it replaces here goes to the trash.

        Raises:
            Conflict: A halt speaks against it. SbxError: The sandbox does not answer.
        """
        paths = [item.path for item in items]
        outcomes = Outcomes()
        async with self._syncs.reviewing(row) as (pair, intake):
            now = await review(pair)
            check_halts(row.name, now, accepts_deletes=accepts_deletes)
            for path in (item.path for item in items if item.is_conflict):
                if path in pair.conflicts:
                    _add(outcomes, await resolve(pair, intake, path, Side.GUEST))
                else:
                    outcomes.moved_on.add(path)
            wanted, changed = only_seen(_asked(found.reviewed, paths), _asked(now, paths))
            outcomes.moved_on |= changed
            if wanted.changes:
                _add(outcomes, await take_over(pair, intake, wanted, lambda size_bytes: None))
        return _decided(outcomes)

    async def reject(self, row: Registration, items: Sequence[Item]) -> Decided:
        """Give the sandbox this machine's version again; its own goes to the trash there.

        Raises:
            SbxError: The sandbox does not answer.
        """
        outcomes = Outcomes()
        async with self._syncs.reviewing(row) as (pair, intake):
            now = await review(pair)
            differing = {*pair.conflicts, *(change.path for change in now.changes)}
            paths = {item.path for item in items}
            for path in sorted(paths):
                if paths.intersection(list(ancestors(path))[1:]):
                    continue
                if path in differing:
                    _add(outcomes, await resolve(pair, intake, path, Side.LOCAL))
                else:
                    outcomes.moved_on.add(path)
        return _decided(outcomes)

    async def keep_both(self, row: Registration, item: Item) -> Decided:
        """Keep this machine's version of a conflict, and the sandbox's beside it, as `NAME.sandbox.EXT`, on both sides.

        Raises:
            Unsupported: The sandbox's is no file or link. SbxError: The sandbox does not answer.
        """
        return await self._settle(row, item, keep_both)

    async def merge(self, row: Registration, item: Item) -> Decided:
        """Give both sides of a conflict a text with the changes of both.

        Raises:
            Unsupported: They cannot be merged. Conflict: Both changed the same lines. Nothing was changed then.
        """
        return await self._settle(row, item, merge)

    async def _settle(self, row: Registration, item: Item, settle: Settling) -> Decided:
        async with self._syncs.reviewing(row) as (pair, intake):
            await review(pair)
            if item.path not in pair.conflicts:
                return Decided(failed=((shown(item.path), CHANGED_MEANWHILE),))
            return _decided(await settle(pair, intake, item.path))

    async def undoable(self, row: Registration) -> tuple[Undoable, ...]:
        """What can be taken back: the last pull or decision, what was carried over last, and what was left over."""
        async with self._syncs.reviewing(row) as (pair, _):
            both = [batches_of(pair, is_pushed=is_pushed) for is_pushed in (False, True)]
        batches = [last_batch(found, is_left_over=is_left) for is_left in (False, True) for found in both]
        return tuple(_undoable(one) for one in batches if one is not None)

    async def undo(self, row: Registration, what: Undoable) -> Decided:
        """Take it back.

        Raises:
            Conflict: Something else was changed since. SbxError: The sandbox does not answer.
        """
        async with self._syncs.reviewing(row) as (pair, intake):
            found = batches_of(pair, is_pushed=what.is_pushed)
            batch = last_batch(found, is_left_over=what.is_left_over)
            if batch is None or batch.number != what.number or _undoable(batch) != what:
                raise Conflict("something else was changed meanwhile: nothing was taken back", hint="look at it again")
            return _decided(await undo(pair, intake, batch))


def _conflict_item(view: ConflictView) -> Item:
    return Item(view.path, _CONFLICT, f"here {view.local_words} · there {view.guest_words}")


def _change_item(view: ChangeView) -> Item:
    return Item(view.path, view.word, view.size_words.strip(), view.may_run)


def _change_of(one: Difference) -> Change:
    """A conflict as the change that takes the sandbox's version."""
    return Change(Side.LOCAL, Op.PUT if one.guest is not None else Op.DELETE, one.path, one.guest, one.local)


def _asked(reviewed: Reviewed, paths: Sequence[Path]) -> Reviewed:
    return replace(reviewed, changes=tuple(one for one in reviewed.changes if is_asked(one, paths)))


def _add(all_: Outcomes, more: Outcomes) -> None:
    all_.done += more.done
    all_.moved_on |= more.moved_on | more.again
    all_.failed.update(more.failed)


def _decided(outcomes: Outcomes) -> Decided:
    failed = {**dict.fromkeys(outcomes.moved_on, CHANGED_MEANWHILE), **outcomes.failed}
    return Decided(len(outcomes.done), tuple((shown(path), code) for path, code in sorted(failed.items())))


def _undoable(batch: Batch) -> Undoable:
    paths = tuple(shown(step.path) for step in batch.steps)
    return Undoable(batch.number, batch.word, batch.at_s, paths, batch.word == "push", batch.is_left_over)
