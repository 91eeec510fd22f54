"""One turn of a link: look, decide, carry over, write down. Its caller holds `Ancestors.cycle`.

What is known of the sandbox may be wrong at any time; every change made there says what it expects to find.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import AsyncExitStack

from sbxtui.core.errors import Conflict, FileMissing
from sbxtui.services.sync.basetexts import keep_texts
from sbxtui.services.sync.gauge import Gauge, TakesLong
from sbxtui.services.sync.halts import Halt, find_lost_root
from sbxtui.services.sync.headstart import HeadStart, head_start
from sbxtui.services.sync.ignores import decides_what_is_left_out
from sbxtui.services.sync.intake import Intake
from sbxtui.services.sync.made import CHANGED_MEANWHILE
from sbxtui.services.sync.model import Change, Difference, OnConflict, Path, Plan, Side
from sbxtui.services.sync.pair import Outcomes, Pair
from sbxtui.services.sync.resolve import decide
from sbxtui.services.sync.status import LinkState, Status
from sbxtui.services.sync.watch import EVERYTHING

# Looking at that many one by one takes longer than looking at everything.
_MANY_PATHS = 500
# Reading for longer than that makes it worth while to ask for the sizes alone.
_LONG_LOOK_S = 5.0
OnStatus = Callable[[Status], None]


class Cycle:
    """Turns of one link.

    Args:
        pair: The two folders.
        on_status: Called at each change of `status`.
        intake: Of a two-way link: what takes the sandbox's changes in.
        on_conflict: What becomes of conflicts. Only of a two-way link the sandbox's side can win.

    Attributes:
        pair: The two folders.
        status: How the link is.
        look_again: Paths of this machine that could not be settled in the last turn.
        failed: Paths the sandbox refused in the last turn.
        scan_s: How long the last look at everything took.
    """

    def __init__(
        self,
        pair: Pair,
        on_status: OnStatus = lambda status: None,
        *,
        intake: Intake | None = None,
        on_conflict: OnConflict = OnConflict.STOP,
    ) -> None:
        self.pair = pair
        self._intake = intake
        self._on_conflict = on_conflict
        self._undecided: set[Difference] = set()
        self.status = Status()
        self.look_again: set[Path] = set()
        self.failed: set[Path] = set()
        self.scan_s = 0.0
        self._on_status = on_status
        # Of a look at everything here only what is news is decided: and what another process changed, or was refused.
        self._must_decide_all = False
        self._open: set[Path] = set()
        # What the sandbox refused, and was not asked for again since.
        self._refused: dict[Path, str] = {}

    async def compare(self) -> None:
        """Look at both sides as a whole, and carry over what differs, unless that halts.

        Raises:
            SbxError: One side cannot be looked at or changed; what was done is written down.
        """
        self.tell(LinkState.SCANNING)
        await self.pair.load()
        started_s = time.monotonic()
        if not self.pair.folder.reopen():
            self._halt(find_lost_root(Side.LOCAL))
            return
        async with AsyncExitStack() as stack:
            try:
                is_first = not (self.pair.has_met or self.pair.base)
                ahead = await stack.enter_async_context(
                    head_start(self.pair.guest, self.pair.folder.identity, is_wanted=is_first)
                )
                if large := await self._look(ahead):
                    self._halt(*large)
                    return
            except FileMissing:
                self._halt(find_lost_root(Side.GUEST))
                return
            self._scanned(started_s)
            self._must_decide_all, self._open = False, set()
            planned = self.pair.compare()
            if halts := self._halts(planned):
                self._halt(*halts)
            else:
                await self._carry_out(planned, LinkState.SEEDING, is_all=True, ahead=ahead)

    async def _look(self, ahead: HeadStart | None) -> tuple[Halt, ...]:
        """Look at both sides as a whole; of what it takes long to see for the first time, the sizes are asked before.

        Returns:
            Why a person has to be asked before all of it is read.
        """
        try:
            await self.pair.look(self._gauge(math.inf if self.pair.has_met else _LONG_LOOK_S), ahead)
        except TakesLong:
            if ahead is not None:
                await ahead.drop()
            if large := await self.pair.find_large():
                return large
            await self.pair.look(self._gauge())
        return ()

    async def follow(self, hinted: Iterable[Path], there: Iterable[Path] = ()) -> int:
        """Look at some paths, and carry over what changed there; returns how many changes that were.

        Everywhere else the sandbox is taken to be as it was left; it is not asked if there is nothing to carry over.

        Args:
            hinted: Paths of this machine.
            there: Paths of the sandbox.

        Raises:
            SbxError: See `compare`.
        """
        asked, asked_there = set(hinted), set(there)
        if await self.pair.load():
            self._must_decide_all = True
            # Whoever changed what was agreed on may have decided what the sides differed in.
            asked |= self.pair.undecided
        started_s = time.monotonic()
        if EVERYTHING in asked or len(asked) > _MANY_PATHS or any(decides_what_is_left_out(path) for path in asked):
            if not self.pair.folder.identity:
                self._halt(find_lost_root(Side.LOCAL))
                return 0
            doubted = None if EVERYTHING in asked else asked
            asked = await self.pair.look_here(doubted=doubted) | self._open
            if self._must_decide_all:
                asked = {EVERYTHING}
            self._must_decide_all, self._open = False, set()
            self._scanned(started_s)
        else:
            await self.pair.look_here(asked)
        if asked_there:
            await self.pair.look_there(None if EVERYTHING in asked_there else asked_there)
        both = asked | asked_there
        planned = self.pair.compare(None if EVERYTHING in both else both)
        if planned.changes and self.pair.hello is None:
            await self.pair.greet()
        if self._halts(planned):
            # Folders that were only renamed look lost as long as their old names alone were hinted at.
            await self.compare()
        else:
            await self._carry_out(planned, LinkState.PUSHING, asked=both)
        return len(planned.changes)

    async def come_back(self, pauses_s: Iterable[float]) -> None:
        """Look again at what could not be settled, as long as there is any, after each of these pauses.

        What is on the move even then is a problem that is told.

        Raises:
            SbxError: See `compare`.
        """
        for pause_s in pauses_s:
            if self.status.halts or not self.look_again:
                return
            await asyncio.sleep(pause_s)
            await self.follow(self.look_again | self.failed)
        left = self.look_again - self.pair.local.unsettled()
        self.status.problems = {**dict.fromkeys(left, CHANGED_MEANWHILE), **self.status.problems}

    def tell(self, state: LinkState, words: str = "") -> None:
        """Say how the link is."""
        self.status.state, self.status.words = state, words
        self._on_status(self.status)

    async def _carry_out(
        self,
        planned: Plan,
        doing: LinkState,
        *,
        is_all: bool = False,
        asked: Container[Path] | None = None,
        ahead: HeadStart | None = None,
    ) -> None:
        self.status.halts = ()
        await self.pair.adopt(planned)
        self.look_again = self.pair.local.unsettled()
        self.failed = set()
        self._refused = {} if asked is None else self._refused_elsewhere(asked)
        self.status.failed = dict(self._refused)
        changes = [change for change in planned.changes if change.side is Side.GUEST]
        # Also when there are none: what a cut left to be done may have been done before the cut.
        self.status.pending = len(changes)
        if changes:
            self.tell(doing)
            progress = self._progress(len(changes), doing)
            await self._take_note(await self.pair.push(changes, progress, head_start=ahead))
        if self._intake is not None:
            await self._take_in([change for change in planned.changes if change.side is Side.LOCAL])
        if self._on_conflict is not OnConflict.STOP:
            await self._decide()
        if self._on_conflict is OnConflict.MERGE:
            await keep_texts(self.pair, None if is_all else [*planned.agreed, *(one.path for one in planned.changes)])
        self._figures()

    def _refused_elsewhere(self, asked: Container[Path]) -> dict[Path, str]:
        """What was refused before, is here still, and is not asked for now."""
        here = self.pair.local.states
        return {path: code for path, code in self._refused.items() if path not in asked and path in here}

    async def _decide(self) -> None:
        """Decide conflicts as was said beforehand; each once, if that does not come to anything."""
        for path, conflict in sorted(self.pair.conflicts.items()):
            if conflict in self._undecided or path not in self.pair.conflicts:
                continue
            try:
                outcomes = await decide(self.pair, self._intake, path, self._on_conflict)
            except Conflict as exc:
                if "guest_code" in exc.details:
                    raise
                self._undecided.add(conflict)
                continue
            self.status.decided += path not in self.pair.conflicts
            self._come_back_to(outcomes)

    async def _take_in(self, changes: Sequence[Change]) -> None:
        """Make the sandbox's changes here."""
        assert self._intake is not None, "only two-way links take changes in"
        if not changes:
            return
        self.tell(LinkState.PULLING)
        outcomes = await self.pair.pull(changes, self._intake, lambda size_bytes: None, is_asked=False)
        self.status.pulled += len(outcomes.done)
        self._come_back_to(outcomes)

    def _come_back_to(self, outcomes: Outcomes) -> None:
        """Where somebody here was faster that is another change now; what was refused is tried again now and then."""
        self.look_again |= outcomes.moved_on | outcomes.again
        self.status.failed = {**self.status.failed, **outcomes.failed}
        self._open |= outcomes.failed.keys()

    def _halts(self, planned: Plan) -> tuple[Halt, ...]:
        return self.pair.halts(planned) if planned.changes or self.pair.hello is not None else ()

    def _halt(self, *halts: Halt) -> None:
        self.status.halts = tuple(halt.code for halt in halts)
        self.tell(LinkState.HALTED, "; ".join(halt.words for halt in halts))

    def _progress(self, total: int, doing: LinkState) -> Callable[[int, int], None]:
        pushed, sent_bytes = self.status.pushed, self.status.sent_bytes

        def progress(done: int, size_bytes: int) -> None:
            self.status.pending = total - done
            self.status.pushed, self.status.sent_bytes = pushed + done, sent_bytes + size_bytes
            self.tell(doing)

        return progress

    async def _take_note(self, outcomes: Outcomes) -> None:
        """What was not done is looked at again, here or there."""
        self.status.pending = 0
        self.look_again |= outcomes.again
        self.failed = set(outcomes.failed)
        self._open |= self.failed
        self._refused.update(outcomes.failed)
        self.status.failed = dict(self._refused)
        if outcomes.moved_on:
            await self.pair.look_there(outcomes.moved_on)
            planned = self.pair.compare(outcomes.moved_on)
            await self.pair.adopt(planned)
            # An edit of what the sandbox deleted, for one, is to be made there.
            self.look_again |= {change.path for change in planned.changes if change.side is Side.GUEST}

    def _gauge(self, patience_s: float = math.inf) -> Gauge:
        loop = asyncio.get_running_loop()
        return Gauge(
            lambda count, warning: loop.call_soon_threadsafe(self._seen, count, warning), patience_s=patience_s
        )

    def _seen(self, count: int, warning: str) -> None:
        if self.status.state is LinkState.SCANNING:
            self.status.seen = count
            self.tell(LinkState.SCANNING, warning)

    def _scanned(self, started_s: float) -> None:
        self.scan_s = time.monotonic() - started_s
        self.status.seen = 0
        self.status.scans += 1
        self.status.last_scan_at_s = time.time()

    def _figures(self) -> None:
        pair, status = self.pair, self.status
        status.entries = len(pair.local.states)
        status.conflicts = tuple(sorted(pair.conflicts))
        status.guest_changes = len(pair.guest_changes)
        status.problems = {**pair.local.problems(), **pair.there.problems(), **status.failed}
