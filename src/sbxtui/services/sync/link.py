"""A link that is being acted on: compare once, then carry over each change as it happens."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Container, Iterable
from contextlib import AbstractAsyncContextManager

from sbxtui.core.errors import Conflict, GuestUnreachable, QuotaExceeded, SbxError, StoreError, TimedOut
from sbxtui.services.sync.beside import beside
from sbxtui.services.sync.cycle import Cycle, OnStatus
from sbxtui.services.sync.intake import Intake
from sbxtui.services.sync.listen import LISTENS_S, GuestWatch
from sbxtui.services.sync.model import OnConflict, Path
from sbxtui.services.sync.pair import Pair
from sbxtui.services.sync.status import LinkState, Status
from sbxtui.services.sync.watch import EVERYTHING, FolderWatch

_SETTLE_S = 0.01
_SETTLE_MAX_S = 0.1
_RESCAN_S = 30.0
# Without hints, changes are found by looking.
_BLIND_RESCAN_S = 2.0
_RESCAN_SHARE = 250
_RETRY_FIRST_S = 0.2
_RETRY_MAX_S = 4.0
# The control plane is asked less often than the sandbox.
_EXPLAIN_EVERY = 4
# What was refused is sent again after so long, then at longer and longer pauses: on a full disk it is all for nothing.
_REFUSED_AGAIN_S = 3.0
_REFUSED_MAX_S = 30.0
_LOCK_TIMEOUT_S = 600.0
# A file that is being written is looked at again after so long, then at longer and longer pauses.
AGAIN_S = (0.05, 0.2, 0.8, 2.0)
_CLOCK_JUMP_S = 5.0
# A disk may be mounted again, and permissions be given back.
_CAN_PASS = frozenset({"local_root_missing", "local_unreadable"})
_HALTED_AGAIN_S = 5.0


class LiveLink:
    """Keeps a sandbox's folder as this machine's is, until it is cancelled or told to stop.

    Args:
        pair: The two folders.
        on_status: Called with the status after each change of it, often.
        intake: Of a two-way link: what takes the sandbox's changes in.
        on_conflict: What becomes of conflicts.
        explain: Asks why the sandbox does not answer.
        listens_s: For how long after the last change to listen for the sandbox's.
        runs: Whether the sandbox runs, as its control plane knows.
    """

    def __init__(
        self,
        pair: Pair,
        on_status: OnStatus = lambda status: None,
        *,
        intake: Intake | None = None,
        on_conflict: OnConflict = OnConflict.STOP,
        explain: Callable[[SbxError], Awaitable[SbxError]] | None = None,
        listens_s: float = LISTENS_S,
        runs: Callable[[], Awaitable[bool]] | None = None,
    ) -> None:
        self._pair = pair
        self._explain = explain
        self._cycle = Cycle(pair, on_status, intake=intake, on_conflict=on_conflict)
        self._on_status = on_status
        self._hinted: dict[Path, float] = {}
        self._hinted_there: set[Path] = set()
        self._guest_watch = None if intake is None else GuestWatch(pair, self.hint_there, listens_s, runs)
        self._bell = asyncio.Event()
        self._is_stopped = False
        self._is_paused = False
        self._must_compare = True
        self._tries: dict[Path, int] = {}
        self._refused_s: dict[Path, float] = {}
        self._refused_timer: asyncio.TimerHandle | None = None
        self._timers: set[asyncio.TimerHandle] = set()

    @property
    def status(self) -> Status:
        """How it is."""
        return self._cycle.status

    def hint(self, paths: Iterable[Path]) -> None:
        """Look at these paths, and below, soon; `EVERYTHING` is all."""
        now_s = time.monotonic()
        for path in paths:
            self._hinted.setdefault(path, now_s)
        self._bell.set()

    def hint_there(self, paths: Iterable[Path]) -> None:
        """Look at these paths of the sandbox soon."""
        self._hinted_there.update(paths)
        self._bell.set()

    def pause(self, is_paused: bool) -> None:
        """Carry nothing over for now, or go on; what happened meanwhile is found then."""
        if is_paused is not self._is_paused:
            self._is_paused = is_paused
            self._must_compare = True
            self._bell.set()

    def compare_again(self) -> None:
        """Look at both sides as a whole, also out of a halt: a person has decided something."""
        self._must_compare = True
        self._bell.set()

    def stop(self) -> None:
        """End `run` after what is being done now."""
        self._is_stopped = True
        self._bell.set()

    async def run(self) -> None:
        """Act on the link. Outages are waited for; what a person has to decide is a halt, and waited for, too.

        Raises:
            SbxError: It cannot go on: the sandbox is gone, its guest is too old, the state cannot be kept.
            Exception: A bug in it or in a watch; without its hints it would only seem to go on.
        """
        root = os.fsencode(self._pair.folder.root.path)
        watch = FolderWatch(root, self.hint, self._trouble, self._lost, is_known=self._is_known)
        watching = [watch.run()] if self._guest_watch is None else [watch.run(), self._guest_watch.run()]
        try:
            async with beside(*watching):
                await self._turns()
        finally:
            for timer in self._timers:
                timer.cancel()
            self._cycle.tell(LinkState.ENDED, self.status.words)

    async def _turns(self) -> None:
        pause_s, tries = _RETRY_FIRST_S, 0
        while not self._is_stopped:
            try:
                await self._turn()
                pause_s, tries = _RETRY_FIRST_S, 0
            except SbxError as exc:
                words = await self._reason(exc, tries)
                # Whatever was on its way may have arrived or not: both sides tell.
                self._must_compare = True
                self._cycle.tell(LinkState.OFFLINE, words)
                await self._pause(pause_s)
                pause_s, tries = min(pause_s * 2, _RETRY_MAX_S), tries + 1

    async def _reason(self, failure: SbxError, tries: int) -> str:
        """Why it is offline.

        Raises:
            SbxError: For a reason that does not pass.
        """
        reason = failure
        is_unsaid = isinstance(failure, GuestUnreachable) or type(failure) is Conflict
        if is_unsaid and self._explain is not None and tries % _EXPLAIN_EVERY == 0:
            reason = await self._explain(failure)
        if not _may_pass(reason):
            raise reason from failure
        return reason.message

    async def _turn(self) -> None:
        """One thing: a comparison, some changes, or a wait."""
        if self._is_paused:
            self._cycle.tell(LinkState.PAUSED)
            await self._idle(None)
        elif self._must_compare:
            async with self._lock():
                self._hinted.clear()
                self._hinted_there.clear()
                self._must_compare = False
                await self._cycle.compare()
            self._wake()
            self._look_again()
        elif self.status.state is LinkState.HALTED:
            can_pass = _CAN_PASS.issuperset(self.status.halts)
            await self._idle(_HALTED_AGAIN_S if can_pass else None)
            self._must_compare |= can_pass
        else:
            await self._changes()

    async def _changes(self) -> None:
        """Wait for hints, or for the time to look without any, and carry over what they lead to."""
        if self.status.state is not LinkState.WATCHING:
            self._cycle.tell(LinkState.WATCHING)
        offset_s = time.time() - time.monotonic()
        has_rung = await self._ring(self._rescan_in_s())
        if abs(time.time() - time.monotonic() - offset_s) > _CLOCK_JUMP_S:
            self._must_compare = True
        if self._is_stopped or self._is_paused or self._must_compare:
            return
        if not (self._hinted or self._hinted_there):
            if has_rung:
                # For a hint that came while the ones before it settled, and was taken with them.
                return
            self.hint({EVERYTHING})
        await self._settle()
        async with self._lock():
            hinted, self._hinted = self._hinted, {}
            there, self._hinted_there = self._hinted_there, set()
            if await self._cycle.follow(hinted, there):
                self.status.lags_s.extend(time.monotonic() - since_s for since_s in sorted(hinted.values())[:1])
                self._wake()
        self._look_again(hinted)

    def _wake(self) -> None:
        if self._guest_watch is not None:
            self._guest_watch.wake()

    def _look_again(self, asked: Container[Path] | None = None) -> None:
        """Come back to what could not be settled of what was asked about; None is everything."""
        unsettled = self._cycle.look_again
        self._tries = {path: self._tries.get(path, 0) + 1 for path in unsettled}
        for path, tries in self._tries.items():
            self._later(AGAIN_S[min(tries, len(AGAIN_S)) - 1], {path})
        before_s, refused = self._refused_s, self._cycle.failed
        now_s = {path: min(2 * before_s.get(path, _REFUSED_AGAIN_S / 2), _REFUSED_MAX_S) for path in refused}
        kept_s = {} if asked is None else {path: wait_s for path, wait_s in before_s.items() if path not in asked}
        self._refused_s = {**kept_s, **now_s}
        if refused:
            # One at a time: looks at everything come to what was refused, too.
            if self._refused_timer is not None:
                self._refused_timer.cancel()
                self._timers.discard(self._refused_timer)
            self._refused_timer = self._later(min(now_s.values()), set(self._refused_s))

    def _later(self, delay_s: float, paths: set[Path]) -> asyncio.TimerHandle:
        def due() -> None:
            self._timers.discard(timer)
            self.hint(paths)

        timer = asyncio.get_running_loop().call_later(delay_s, due)
        self._timers.add(timer)
        return timer

    async def _settle(self) -> None:
        """Let a save come to its end: until nothing was hinted at for 10 ms, and 100 ms at most.

        This machine's watcher speaks only once it saw nothing for as long, so that its first word is enough.
        """
        deadline_s = time.monotonic() + _SETTLE_MAX_S
        count = -1 if self._hinted_there else len(self._hinted)
        while count != len(self._hinted) and time.monotonic() < deadline_s:
            count = len(self._hinted)
            await asyncio.sleep(_SETTLE_S)

    async def _ring(self, timeout_s: float | None) -> bool:
        """Wait until something is asked for or hinted at, or for so long; returns whether the bell rang."""
        if not (self._hinted or self._hinted_there or self._is_stopped):
            await self._wait(timeout_s)
        has_rung = self._bell.is_set()
        self._bell.clear()
        return has_rung

    async def _idle(self, timeout_s: float | None) -> None:
        """Wait until something is asked for; hints are nothing, for everything is compared afterwards."""
        self._hinted.clear()
        self._hinted_there.clear()
        await self._ring(timeout_s)

    async def _pause(self, pause_s: float) -> None:
        """A pause that only `stop` cuts short."""
        deadline_s = time.monotonic() + pause_s
        while not self._is_stopped and (left_s := deadline_s - time.monotonic()) > 0:
            self._bell.clear()
            await self._wait(left_s)

    async def _wait(self, timeout_s: float | None) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self._bell.wait()
        except TimeoutError:
            return

    def _rescan_in_s(self) -> float:
        shortest_s = _BLIND_RESCAN_S if self.status.trouble else _RESCAN_S
        return max(shortest_s, _RESCAN_SHARE * self._cycle.scan_s)

    def _lock(self) -> AbstractAsyncContextManager[None]:
        return self._pair.ancestors.cycle(timeout_s=_LOCK_TIMEOUT_S)

    def _is_known(self, path: Path) -> bool:
        return path in self._pair.local.states

    def _lost(self) -> None:
        self.status.overflows += 1

    def _trouble(self, words: str) -> None:
        self.status.trouble = words
        self._on_status(self.status)


def _may_pass(exc: SbxError) -> bool:
    """Whether waiting can help: an outage can end, a suspended sandbox be resumed, a full disk get room."""
    if isinstance(exc, TimedOut | StoreError | QuotaExceeded):
        return True
    # A fault of the guest's own may be gone when it is asked again, or started again.
    is_fault = exc.details.get("http_status") in range(500, 600)
    return type(exc) is Conflict or exc.retryable or is_fault
