"""Two folders, what they last agreed on, and what each holds now: compared, and brought nearer step by step."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing

from sbxguest.tree import State
from sbxguest.tree.ignore import RuleTable
from sbxtui.guest.tree import GuestTree
from sbxtui.guest.treewire import TreeHello
from sbxtui.services.sync.folder import Folder, sizes_in
from sbxtui.services.sync.gauge import Gauge
from sbxtui.services.sync.halts import FIRST_DELETES, LARGE_SEED, Halt, Roots, find_halts, find_large_seed
from sbxtui.services.sync.headstart import HeadStart
from sbxtui.services.sync.ignores import without_ignored
from sbxtui.services.sync.intake import Intake
from sbxtui.services.sync.made import Made, taken_in
from sbxtui.services.sync.model import Change, Difference, Mode, Op, Path, Plan, Side
from sbxtui.services.sync.outcomes import Outcomes as Outcomes
from sbxtui.services.sync.picture import Picture, above_of, part_of, scope_of, within
from sbxtui.services.sync.plan import plan
from sbxtui.services.sync.safety import refused_of, without
from sbxtui.services.sync.standing import standing
from sbxtui.services.sync.transfer import Gone, Upload, size_of
from sbxtui.store.ancestors import Agreed, Ancestors, Dispute, Step

# Looked up for every file.
_ROOTS = ("local_root", "guest_root")
# What a person agreed to for the first comparison, and the halt that is none then: a mirror deletes what only the
# sandbox has; very much is sent.
ACCEPT_DELETES, ACCEPT_LARGE = "accept_deletes", "accept_large"
_NO_CONSENT = {ACCEPT_DELETES: "", ACCEPT_LARGE: ""}
_CONSENTS = {FIRST_DELETES: ACCEPT_DELETES, LARGE_SEED: ACCEPT_LARGE}


class Pair:
    """A folder of this machine and one of a sandbox.

    Everything that compares or changes is done under `Ancestors.cycle`, which is the caller's to hold.

    Attributes:
        local: What this machine holds.
        there: What the sandbox holds.
        base: What both agreed on.
        hello: What the sandbox last said of its folder.
        cursor: Where the sandbox's changes go on after it was looked at as a whole.
        conflicts, guest_changes: As of the last comparison, by path.
    """

    def __init__(self, folder: Folder, guest: GuestTree, ancestors: Ancestors, mode: Mode) -> None:
        self.folder = folder
        self.guest = guest
        self.ancestors = ancestors
        self.mode = mode
        self.local, self.there = Picture(), Picture()
        self.base: dict[Path, State] = {}
        self.hello: TreeHello | None = None
        self.cursor = ""
        self.conflicts: dict[Path, Difference] = {}
        self.guest_changes: dict[Path, Difference] = {}
        self._version = -1
        self._gone = Gone()
        self._has_disputes = True

    async def look(self, gauge: Gauge | None = None, head_start: HeadStart | None = None) -> None:
        """Look at both sides as a whole; `gauge` tells how far that has come here, `head_start` takes it along at once.

        Raises:
            SbxError: One side cannot be looked at: nothing is known anew.
        """
        await self.look_here(gauge=gauge, head_start=head_start)
        if head_start is None or self.mode is not Mode.PUSH or not head_start.is_fresh:
            await self.look_there()
        else:
            # In the other modes what came since may have to be asked about before it is decided on.
            self.hello = head_start.hello
            self.there.take_all(())

    async def look_here(
        self,
        paths: Iterable[Path] | None = None,
        *,
        gauge: Gauge | None = None,
        doubted: Collection[Path] | None = None,
        head_start: HeadStart | None = None,
    ) -> set[Path]:
        """Look at this machine's folder, or at and below some of its paths; returns where it may be another by now.

        For `doubted` and `head_start` see `Folder.news`.
        """
        if paths is None:
            self.folder.ignores.texts.clear()
            known = self.local.states
            records, gone = await self.folder.news(known, gauge=gauge, doubted=doubted, head_start=head_start)
            return self.local.take_news(records, gone)
        asked = set(paths)
        above = await self.folder.scan(above_of(asked), self.local.states, is_deep=False)
        self.local.take(asked, await self.folder.scan(asked, self.local.states), above)
        return asked

    async def look_there(self, paths: Iterable[Path] | None = None) -> None:
        """Look at the sandbox's folder, or at and below some of its paths."""
        texts = self.folder.ignores.texts
        # The sandbox may list what it likes: what is left out is left out here, too.
        rules = RuleTable(texts)
        if paths is None:
            self.hello = await self.guest.hello()
            manifest = await self.guest.scan(ignore=texts, has_cursor=self._is_followed)
            self.there.take_all(without_ignored(rules, manifest.records))
            self.there.listing().check()
            self.cursor = manifest.cursor
        else:
            asked = list(paths)
            above = await self.guest.scan(above_of(asked), is_deep=False, ignore=texts, has_cursor=self._is_followed)
            found = await self.guest.scan(asked, ignore=texts, has_cursor=self._is_followed)
            self.there.take(asked, without_ignored(rules, found.records), without_ignored(rules, above.records))
            told = {one.path for one in (*above.records, *found.records)}
            part_of(self.there.listing(), told.union(above_of(told))).check()

    @property
    def undecided(self) -> set[Path]:
        """What somebody has to decide, or has and it was not seen yet."""
        return {*self.conflicts, *self.guest_changes}

    @property
    def _is_followed(self) -> bool:
        """Whether anybody may ask what changed in the sandbox."""
        return self.mode is Mode.TWO_WAY

    async def find_large(self) -> tuple[Halt, ...]:
        """Why a first comparison must not be made before a person was asked, as far as sizes tell: nothing is read.

        What has the same length on both sides counts as being there already.
        """
        here = await self.folder.sizes()
        texts = self.folder.ignores.texts
        manifest = await self.guest.scan(has_digests=False, ignore=texts, has_cursor=self._is_followed)
        there = sizes_in(manifest.records)
        contents = {path: size_bytes for path, size_bytes in here.items() if there.get(path) != size_bytes}
        return self._not_agreed_to(find_large_seed(contents))

    def _not_agreed_to(self, halts: Iterable[Halt]) -> tuple[Halt, ...]:
        meta = self.ancestors.meta()
        return tuple(halt for halt in halts if not meta.get(_CONSENTS.get(halt.code, "")))

    async def greet(self) -> None:
        """Ask the sandbox which folder it has, without looking at it."""
        self.hello = await self.guest.hello()

    @property
    def has_met(self) -> bool:
        """Whether these two folders were compared before."""
        return self._agreed_roots() is not None

    @property
    def is_outdated(self) -> bool:
        """Whether another process changed what was agreed on."""
        return self.ancestors.version() != self._version

    async def load(self) -> bool:
        """Read what was agreed on, if another process changed it: then the sandbox holds that, as far as known.

        Returns:
            Whether it was.
        """
        return await asyncio.to_thread(self._load)

    def _load(self) -> bool:
        version = self.ancestors.version()
        if version == self._version:
            return False
        self._version, self._has_disputes = version, True
        base = standing(self.ancestors.base())
        for path in self.base.keys() - base.keys():
            self.there.put(path, None)
        self.base = {path: agreed.local for path, agreed in base.items()}
        for path, agreed in base.items():
            self.there.put(path, agreed.guest)
        self.there.is_complete = True
        if not self.local.is_complete:
            # What has the same stamp when it is looked at need not be read.
            self.local = Picture()
            for path, agreed in base.items():
                self.local.put(path, agreed.local)
        return True

    def compare(self, paths: Iterable[Path] | None = None) -> Plan:
        """What is to be done; for some paths only, if they are all that changed."""
        local, there = self.local.listing(), self.there.listing()
        if paths is None:
            planned = plan(self.base, local, there, self.mode)
            self.conflicts, self.guest_changes = {}, {}
        else:
            scope = scope_of(paths, self.base, local.entries, there.entries)
            planned = plan(within(self.base, scope), part_of(local, scope), part_of(there, scope), self.mode)
            for path in scope:
                self.conflicts.pop(path, None)
                self.guest_changes.pop(path, None)
        self.conflicts.update((one.path, one) for one in planned.conflicts)
        self.guest_changes.update((one.path, one) for one in planned.guest_changes)
        return planned

    def halts(self, planned: Plan) -> tuple[Halt, ...]:
        """Why the plan must not be carried out; empty when it may."""
        now = Roots(self.folder.identity, self._guest_root())
        found = find_halts(
            self.base,
            self.local.settled(),
            self.there.settled(),
            planned,
            agreed=self._agreed_roots(),
            now=now,
            taken=self.ancestors.taken(),
        )
        large = () if self.has_met else find_large_seed(self._contents(planned))
        return self._not_agreed_to((*found, *large))

    def _contents(self, planned: Plan) -> dict[Path, int]:
        """The files that would be sent, with their sizes."""
        state_at, side, put = self.local.states.get, Side.GUEST, Op.PUT
        puts = [one.path for one in planned.changes if one.op is put and one.side is side]
        return {path: size_of(state_at(path)) for path in puts}

    def _guest_root(self) -> str:
        hello = self.hello
        return "" if hello is None else f"{hello.guest_id}:{hello.epoch}:{hello.root}"

    def _agreed_roots(self) -> Roots | None:
        meta = self.ancestors.meta()
        return Roots(*(meta[key] for key in _ROOTS)) if all(meta.get(key) for key in _ROOTS) else None

    async def adopt(self, planned: Plan) -> None:
        """Record what both sides agree on already, whose folders these are, and what they do not agree on."""
        await asyncio.to_thread(self._adopt, planned)

    def _adopt(self, planned: Plan) -> None:
        if self._agreed_roots() is None:
            roots = (self.folder.identity, self._guest_root())
            # The consent was for this first comparison.
            self.ancestors.set_meta({**dict(zip(_ROOTS, roots, strict=True)), **_NO_CONSENT})
        self._record({path: path in self.local.states for path in planned.agreed})
        disputes = [
            Dispute(path, one.base, self.local.states.get(path), self.there.states.get(path))
            for path, one in self.conflicts.items()
        ]
        if disputes or self._has_disputes:
            self.ancestors.set_disputes(disputes)
        self._has_disputes = bool(disputes)

    async def push(
        self,
        changes: Sequence[Change],
        on_progress: Callable[[int, int], None],
        *,
        word: str = "push",
        outcomes: Outcomes | None = None,
        head_start: HeadStart | None = None,
    ) -> Outcomes:
        """Make changes in the sandbox.

        Args:
            changes: Of its side.
            on_progress: Called with how many changes and bytes of content are done.
            word: What makes them, for `undo`.
            outcomes: Of changes these belong to: `undo` takes all of them back together.
            head_start: What has some of them on its way already.

        Raises:
            SbxError: It does not answer, or its disk is full; what was done is recorded.
        """
        sent_bytes = 0
        outcomes = outcomes or Outcomes()
        done = outcomes.done

        def count(size_bytes: int) -> None:
            nonlocal sent_bytes
            sent_bytes += size_bytes
            on_progress(len(done), sent_bytes)

        if head_start is not None:
            changes = await head_start.finish(changes)
            async with aclosing(head_start.made()) as ahead:
                async for made in ahead:
                    await asyncio.to_thread(self._settle, Side.GUEST, made, outcomes, word)
                    on_progress(len(done), sent_bytes)
            count(await head_start.arrived())
        upload = Upload(self.folder, self.guest, count, self._gone.places)
        async with aclosing(upload.batches(changes, self.local.states, self.there.states)) as batches:
            async for made in batches:
                await asyncio.to_thread(self._settle, Side.GUEST, made, outcomes, word)
                on_progress(len(done), sent_bytes)
        return outcomes

    async def pull(
        self,
        changes: Sequence[Change],
        intake: Intake,
        on_bytes: Callable[[int], None],
        *,
        word: str = "pull",
        is_asked: bool = True,
        outcomes: Outcomes | None = None,
    ) -> Outcomes:
        """Make changes in this machine's folder, but for what is unsafe; `is_asked`: a person looked at them.

        Raises:
            SbxError: See `push`.
        """
        outcomes = outcomes or Outcomes()
        refused = refused_of(changes)
        outcomes.failed.update(refused)
        wanted = without(changes, refused)
        fetched = intake.fetch(wanted, self.local.states, self.there.states, self.guest, on_bytes)
        async for made in fetched:
            steps = await asyncio.to_thread(self._settle, Side.LOCAL, made, outcomes, word)
            if not is_asked:
                await asyncio.to_thread(self.ancestors.note_taken, steps)
        return outcomes

    async def write_here(
        self, change: Change, content: bytes, intake: Intake, outcomes: Outcomes, *, word: str = "resolve"
    ) -> None:
        """Give a file of this machine a content that was made here; both sides agree on what they did before."""
        made = await asyncio.to_thread(intake.write, change, content, self.local.states)
        await asyncio.to_thread(lambda: self._settle(Side.LOCAL, made, outcomes, word, is_agreed=False))

    def _settle(
        self, side: Side, made: Sequence[Made], outcomes: Outcomes, word: str, *, is_agreed: bool = True
    ) -> list[Step]:
        """Write down what became of a batch; returns what was changed."""
        is_here = side is Side.LOCAL
        done, steps = taken_in(made, side, self.local if is_here else self.there, outcomes)
        outcomes.done += [change.path for change in done]
        if not is_here:
            self._gone.note(done)
        if is_agreed:
            self._record({change.path: change.entry is not None for change in done})
        self._note(steps, outcomes, word)
        return steps

    def _note(self, steps: Sequence[Step], outcomes: Outcomes, word: str) -> None:
        """Remember what was changed, for `undo`."""
        if steps:
            outcomes.batch = self.ancestors.note_steps(word, steps, number=outcomes.batch)

    def _record(self, paths: dict[Path, bool]) -> None:
        """Both sides hold the same at these paths; or nothing."""
        here_at, there_at = self.local.states.get, self.there.states.get
        changes: dict[Path, Agreed | None] = {}
        for path, is_there in paths.items():
            here, there = here_at(path), there_at(path)
            changes[path] = Agreed(here, there) if is_there and here is not None and there is not None else None
        self.ancestors.record(changes)
        self._know(changes)

    def _know(self, changes: Mapping[Path, Agreed | None]) -> None:
        for path, agreed in changes.items():
            if agreed is None:
                self.base.pop(path, None)
            else:
                self.base[path] = agreed.local

    async def forget(self, paths: Iterable[Path]) -> dict[Path, Agreed]:
        """Agree on nothing at these paths any more; returns what was agreed on there."""
        base = await asyncio.to_thread(self.ancestors.base)
        held = {path: base[path] for path in paths if path in base}
        await self.agree_on(dict.fromkeys(held))
        return held

    async def agree_on(self, agreed: Mapping[Path, Agreed | None]) -> None:
        """Both sides count as having agreed on these, whatever they hold now: what differs from it is a change."""
        await asyncio.to_thread(self.ancestors.record, agreed)
        self._know(agreed)

    async def start_anew(self) -> None:
        """Agree on nothing any more: the next comparison is a first contact and deletes nothing."""
        await asyncio.to_thread(self.ancestors.forget)
        await asyncio.to_thread(self.ancestors.set_meta, dict.fromkeys((*_ROOTS, *_NO_CONSENT), ""))
        self.base.clear()
