"""One sandbox's life: PENDING → RUNNING ⇄ SUSPENDED → TERMINATED, driven by the API, its endpoint, time and its keeper.

Invariants. Transitions hold `_lock`, one at a time. A state is on disk before its effect begins, so that a crash in
between is finished by the next process. TERMINATING alone is set outside `_lock`: nothing leaves it but TERMINATED.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sbxtui.core.errors import GuestUnreachable, SbxError
from sbxtui.core.model import SandboxState
from sbxtui.localcloud import faults
from sbxtui.localcloud.adoption import find_keeper
from sbxtui.localcloud.duplex import Duplex
from sbxtui.localcloud.endings import exit_reason, reason_without_keeper
from sbxtui.localcloud.hooks import HookOutcome
from sbxtui.localcloud.keeper_client import KeeperClient, start_keeper
from sbxtui.localcloud.keeper_place import remove_remains
from sbxtui.localcloud.keeper_save import copy_sleeping, find_saved
from sbxtui.localcloud.launching import Populate, greet, launch_problem, nothing_to_populate
from sbxtui.localcloud.lifecycle import call_lifecycle_hook
from sbxtui.localcloud.records import Record
from sbxtui.localcloud.spec import ExitInfo, KeeperState, read_exit
from sbxtui.localcloud.streams import Traffic
from sbxtui.localcloud.waits import NotReachable, unless_set, until_known, wait_end
from sbxtui.localcloud.world import World

log = logging.getLogger(__name__)

TERMINATE_GRACE_S = 2.0
# A running one is saved for the moment in which it is copied.
_MAY_SLEEP = (SandboxState.SUSPENDED, SandboxState.SUSPENDING, SandboxState.RUNNING)


class Vm:
    """One sandbox. `record` is what the disk holds; `traffic` is its endpoint's."""

    def __init__(self, record: Record, world: World, populate: Populate = nothing_to_populate) -> None:
        self.record = record
        self._populate = populate
        self.traffic = Traffic()
        self.changed = asyncio.Event()
        self._world = world
        self._keeper: KeeperClient | None = None
        self._lock = asyncio.Lock()
        self._write_lock = asyncio.Lock()
        # Set when the keeper reports the end, or somebody asked for it: launches and hooks stop waiting.
        self._ending = asyncio.Event()
        self._keeper_settled = asyncio.Event()
        # After a restart, the disk's state and an absent keeper mean nothing until the keeper was looked for.
        self.known = asyncio.Event()
        self._exit: ExitInfo | None = None
        if self.is_over:
            self.known.set()
            self._keeper_settled.set()

    @property
    def state(self) -> SandboxState:
        """As the disk has it."""
        return self.record.state

    @property
    def is_over(self) -> bool:
        """Whether it has ended for good."""
        return self.record.state is SandboxState.TERMINATED

    # Transitions

    async def launch(self) -> None:
        """PENDING → RUNNING, or TERMINATED with the reason."""
        self.known.set()
        async with self._lock:
            if self.state is not SandboxState.PENDING:
                return
            reason = await self._launch()
            self._keeper_settled.set()
            if reason:
                await self._end_keeper()
                await self._finish(reason)
                return
            self.traffic.touch()
            await self._set(state=SandboxState.RUNNING, must=True)

    async def suspend(self, *, if_idle_s: float = 0.0) -> None:
        """RUNNING → SUSPENDED; suspended already: nothing happens. A failing hook ends the sandbox, as on the platform.

        Args:
            if_idle_s: Runs on after all when a byte passed the endpoint within so many seconds, even during the hook.

        Raises:
            Fault: 409 in any other state, 500 when the sandbox could not be frozen: it runs on.
        """
        await self._until_known()
        async with self._lock:
            if self.state is SandboxState.SUSPENDED:
                return
            self.check_is(SandboxState.RUNNING, SandboxState.SUSPENDING)
            await self._set(state=SandboxState.SUSPENDING)
            await self._suspend(if_idle_s)

    async def resume(self) -> None:
        """SUSPENDED → RUNNING; running already: nothing happens.

        Raises:
            Fault: 409 in any other state, 500 when the resume hook failed: it is suspended again.
        """
        await self._until_known()
        async with self._lock:
            if self.state is SandboxState.RUNNING:
                return
            self.check_is(SandboxState.SUSPENDED)
            await self._resume()

    async def terminate(self, reason: str = "Success.", *, has_hook: bool = True) -> None:
        """Any state → TERMINATED; done already: nothing happens. Without `has_hook` the sandbox is not told first.

        Raises:
            Fault: 500 when its keeper cannot be asked yet; it ends as soon as it can.
        """
        is_told = has_hook and self.state is SandboxState.RUNNING
        if self.is_over:
            return
        await self._set(state=SandboxState.TERMINATING, must=True)
        self._ending.set()
        await self._until_known()
        async with self._lock:
            if self.is_over:
                return
            if is_told and self._keeper is not None and self._exit is None:
                await self._hook("terminate")
            await self._end_keeper()
            await self._finish(reason)

    async def copy_to(self, target: Path) -> str:
        """Write a copy of it, with which another may go on; itself goes on, or sleeps on. The copy's kind.

        Raises:
            Fault: 409 in any other state, 500 when there is no copy.
        """
        await self._until_known()
        async with self._lock:
            self.check_is(SandboxState.RUNNING, SandboxState.SUSPENDED)
            try:
                if self._keeper is None:
                    return await asyncio.to_thread(copy_sleeping, self._world.sandbox_dir(self.record.id), target)
                return await self._keeper.copy(target)
            except (SbxError, OSError) as exc:
                raise faults.internal(f"MicroVM {self.record.id} could not be copied: {exc}") from exc

    def check_is(self, *states: SandboxState) -> None:
        """Refuse a call in the wrong state.

        Raises:
            Fault: 409.
        """
        if self.state not in states:
            wanted = " or ".join(states)
            message = f"MicroVM {self.record.id} is in state {self.state}; it must be {wanted}"
            raise faults.conflict(message, "MicroVM", self.record.id)

    # The endpoint's side

    async def connect(self, port: int) -> Duplex:
        """Dial a port for a request, resuming first where the idle policy says so.

        Raises:
            NotReachable: Not running, and nothing makes it run.
            ConnectionRefusedError: It runs, and nothing listens there.
        """
        while True:
            keeper = await self._admitted()
            self.traffic.touch()
            try:
                dial = asyncio.ensure_future(keeper.dial(port))
                if (duplex := await self.traffic.dialled(dial)) is not None:
                    return duplex
            except GuestUnreachable as exc:
                if self.state is SandboxState.RUNNING:
                    raise NotReachable(exc.message) from exc

    async def dial_inside(self, port: int) -> Duplex:
        """Dial a port for the local cloud itself: it wakes nothing, and is no traffic.

        Raises:
            GuestUnreachable, ConnectionRefusedError: As `KeeperClient.dial`.
        """
        if self._keeper is None:
            raise GuestUnreachable(f"{self.record.id} is {self.state}")
        return await self._keeper.dial(port)

    async def _until_known(self) -> None:
        await until_known(self.known, self.record.id)

    async def _admitted(self) -> KeeperClient:
        try:
            await self._until_known()
        except faults.Fault as exc:
            raise NotReachable(str(exc)) from exc
        if self.state is SandboxState.SUSPENDING:
            async with self._lock:
                pass
        if self.state is SandboxState.SUSPENDED and self.record.idle and self.record.idle.auto_resume:
            try:
                await self.resume()
            except (faults.Fault, OSError) as exc:
                raise NotReachable(str(exc)) from exc
        if self.state is not SandboxState.RUNNING or self._keeper is None or self._exit is not None:
            raise NotReachable(f"{self.record.id} is {self.state}")
        return self._keeper

    # Coming back after a restart of the local cloud

    async def reconcile(self) -> None:
        """Bring a record from disk and the keeper (or what it left) together; then finish what was begun."""
        if self.is_over:
            return
        try:
            await self._reconcile()
        finally:
            self.known.set()

    async def _reconcile(self) -> None:
        self._keeper = await find_keeper(self._world, self.record)
        if self._keeper is not None:
            self._keeper_settled.set()
        if self._keeper is None and self._is_saved() and self.state in _MAY_SLEEP:
            # It sleeps on disk; whatever ended its keeper and its machine, it is resumed as ever.
            at = self.record.suspended_at or datetime.now(UTC)
            await self._set(state=SandboxState.SUSPENDED, suspended_at=at, must=True)
            return
        if self._keeper is None:
            if self.state is SandboxState.PENDING and read_exit(self._world.sandbox_dir(self.record.id)) is None:
                await self.launch()
            else:
                await self._end_keeper()
                await self._finish(reason_without_keeper(self.state, self._world.sandbox_dir(self.record.id)))
            return
        match self.state:
            case SandboxState.PENDING:
                await self.launch()
            case SandboxState.TERMINATING:
                self.known.set()
                await self.terminate()
            case _:
                await self._reconcile_frozen(self._keeper)

    async def _reconcile_frozen(self, keeper: KeeperClient) -> None:
        async with self._lock:
            status = await keeper.status()
            if status.state is KeeperState.FROZEN and self.state in (SandboxState.RUNNING, SandboxState.SUSPENDING):
                await self._set(state=SandboxState.SUSPENDED, suspended_at=datetime.now(UTC), must=True)
            # From here on, whoever finds the state between two others waits for the lock.
            self.known.set()
            match self.state, status.state:
                case SandboxState.SUSPENDING, KeeperState.RUNNING:
                    await self._suspend()
                case SandboxState.SUSPENDED, KeeperState.RUNNING:
                    await self._resume()
                case _:
                    return

    # The keeper's side

    async def watch_exit(self) -> None:
        """Wait for the sandbox's own end; returns when it is TERMINATED, by whatever cause."""
        while self._exit is None:
            await self._keeper_settled.wait()
            if self._keeper is None:
                return
            self._exit = await wait_end(self._keeper, self._world.spec_of(self.record))
            if self._exit is None:
                # Its keeper was killed while it sleeps on disk: another will wake it.
                self._keeper = None
                self._keeper_settled.clear()
                async with self._lock:
                    if self.state is SandboxState.RUNNING:
                        await self._set(state=SandboxState.SUSPENDED, suspended_at=datetime.now(UTC), must=True)
        self._ending.set()
        self.traffic.cut_all()
        async with self._lock:
            if not self.state.is_gone:
                await self._finish(exit_reason(self._exit))

    # Inside a transition

    async def _launch(self) -> str:
        """Do it; the reason it failed, or nothing."""
        try:
            if self._keeper is None:
                await unless_set(self._ending, self._populate(self.record))
                self._keeper = await start_keeper(self._world.spec_of(self.record))
                self._keeper_settled.set()
            outcome = await unless_set(self._ending, greet(self._keeper, self.record))
        except (SbxError, faults.Fault, OSError, TimeoutError) as exc:
            return launch_problem(exc)
        if outcome is None:
            return exit_reason(self._exit) if self._exit else "Success."
        return "" if outcome.is_ok else outcome.reason

    async def _suspend(self, if_idle_s: float = 0.0) -> None:
        keeper = self._require_keeper()
        outcome = await unless_set(self._ending, self._hook("suspend"))
        if outcome is None:
            return
        # No answer at all is not a failure of the hook: a guest too busy to answer keeps its work by being frozen.
        if not outcome.is_ok and outcome.status:
            await self._end_keeper()
            await self._finish(outcome.reason)
            return
        if self.traffic.idle_s < if_idle_s:
            await self._hook("resume")
            await self._set(state=SandboxState.RUNNING, must=True)
            return
        self.traffic.cut_all()
        try:
            await keeper.freeze()
        except SbxError as exc:
            await self._set(state=SandboxState.RUNNING, must=True)
            raise faults.internal(f"MicroVM {self.record.id} could not be suspended: {exc.message}") from exc
        await self._set(state=SandboxState.SUSPENDED, suspended_at=datetime.now(UTC), state_reason="", must=True)

    def _is_saved(self) -> bool:
        return find_saved(self._world.sandbox_dir(self.record.id)) is not None

    async def _keeper_to_resume(self) -> KeeperClient:
        """The keeper that froze it, or a new one where that ended with the machine."""
        if self._keeper is None and self._is_saved():
            self._keeper = await start_keeper(self._world.spec_of(self.record))
            self._keeper_settled.set()
        return self._require_keeper()

    async def _resume(self) -> None:
        try:
            keeper = await self._keeper_to_resume()
            await self._world.before_resume()
            await keeper.thaw()
            outcome = await unless_set(self._ending, self._hook("resume"))
            if outcome is not None and not outcome.is_ok:
                await keeper.freeze()
        except SbxError as exc:
            raise faults.internal(f"MicroVM {self.record.id} could not be resumed: {exc.message}") from exc
        if outcome is None:
            return
        if not outcome.is_ok:
            await self._set(state_reason=outcome.reason)
            raise faults.internal(outcome.reason)
        self.traffic.touch()
        await self._set(state=SandboxState.RUNNING, suspended_at=None, state_reason="", must=True)

    async def _hook(self, name: str) -> HookOutcome:
        return await call_lifecycle_hook(self._require_keeper().dial, self.record, name)

    def _require_keeper(self) -> KeeperClient:
        if self._keeper is None:
            raise faults.internal(f"MicroVM {self.record.id} has no keeper")
        return self._keeper

    async def _end_keeper(self) -> None:
        self.traffic.cut_all()
        if self._keeper is None:
            if self._is_saved():
                await asyncio.to_thread(remove_remains, self._world.spec_of(self.record))
            return
        try:
            await self._keeper.terminate(TERMINATE_GRACE_S)
        except SbxError as exc:
            log.warning("%s: its keeper died while ending it: %s", self.record.id, exc.message)

    async def _finish(self, reason: str) -> None:
        self._ending.set()
        self._keeper_settled.set()
        self.traffic.cut_all()
        await self._set(state=SandboxState.TERMINATED, terminated_at=datetime.now(UTC), state_reason=reason, must=True)
        log.info("%s is TERMINATED: %s", self.record.id, reason)

    async def _set(self, *, must: bool = False, **changes: Any) -> None:
        """Write first, then believe. With `must` (the effect has happened), a full disk is only logged: a restart
        finds out again from the keeper.
        """
        async with self._write_lock:
            wanted: SandboxState = changes.get("state", self.state)
            if self.state.is_gone and wanted is not SandboxState.TERMINATED:
                return
            record = self.record.with_changes(**changes)
            try:
                await self._world.records.save(record)
            except OSError as exc:
                if not must:
                    raise
                log.error("%s: cannot write that it is %s: %s", record.id, record.state, exc)
            self.record = record
        self.changed.set()
