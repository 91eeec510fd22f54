"""All sandboxes of one home: launches (once per client token, within the quota), the passing of time, restarts."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol, Self

from sbxtui.core.errors import SbxError
from sbxtui.core.kills import FILE_NAME
from sbxtui.core.model import SandboxState
from sbxtui.localcloud import faults
from sbxtui.localcloud.adoption import find_keeper
from sbxtui.localcloud.egress.service import Egress
from sbxtui.localcloud.endings import reason_while_alive
from sbxtui.localcloud.golden_shelf import GoldenShelf
from sbxtui.localcloud.idle import Clock, Due, Step, next_due
from sbxtui.localcloud.launches import check_launch, new_record
from sbxtui.localcloud.lost import all_records
from sbxtui.localcloud.origins import Origins
from sbxtui.localcloud.programend import end_with_program
from sbxtui.localcloud.records import Record
from sbxtui.localcloud.replays import fingerprint
from sbxtui.localcloud.snapshots import SnapshotStore
from sbxtui.localcloud.vms import Vm
from sbxtui.localcloud.wishes import runtime_for
from sbxtui.localcloud.world import World

log = logging.getLogger(__name__)

# A call waits this long for the transition it began, so that most clients never see the state between.
SETTLE_S = 2.0
# After a start, calls wait this long in all for what the keepers found say of their sandboxes' states.
KNOWN_S = 5.0
_RETRY_STEP_S = 1.0


class Endpoint(Protocol):
    """A sandbox's listening port."""

    @property
    def port(self) -> int:
        """On 127.0.0.1."""
        ...

    async def serve(self, vm: Vm) -> None:
        """Begin to answer."""
        ...

    async def close(self) -> None:
        """Stop listening and cut what is open."""
        ...


# Binds the given port, or a free one for 0.
OpenEndpoint = Callable[[int], Awaitable[Endpoint]]


@dataclass(slots=True)
class _Member:
    vm: Vm
    endpoint: Endpoint | None
    tasks: set[asyncio.Task[None]]


class Fleet:
    """Use as an async context manager: entered, it takes up all records again; left, sandboxes live on with keepers."""

    def __init__(self, world: World, open_endpoint: OpenEndpoint, egress: Egress, snapshots: SnapshotStore) -> None:
        self.is_draining = False
        self.origins = Origins(snapshots, self.get, world.sandbox_dir, world.builds_dir)
        self._goldens = GoldenShelf(world)
        self._world = world
        self._open_endpoint = open_endpoint
        self._egress = egress
        self._members: dict[str, _Member] = {}
        self._ids_by_token: dict[str, str] = {}
        self._launch_lock = asyncio.Lock()
        self._known_by_s = 0.0
        self._forget_before: datetime | None = None

    async def __aenter__(self) -> Self:
        self._known_by_s = asyncio.get_running_loop().time() + KNOWN_S
        for record in await asyncio.to_thread(all_records, self._world):
            is_gone = record.state is SandboxState.TERMINATED
            endpoint = None if is_gone else await self._reopen(record)
            if endpoint is not None and not record.endpoint_port:
                record = await self._with_port(record, endpoint.port)
            await self._add(record, endpoint, lambda vm: vm.reconcile())
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = [task for member in self._members.values() for task in member.tasks]
        for task in tasks:
            task.cancel()
        await self._goldens.close()
        await asyncio.gather(*tasks, return_exceptions=True)
        for member in self._members.values():
            if member.endpoint is not None:
                await member.endpoint.close()

    # What the API asks

    async def until_known(self) -> None:
        """Right after a start, wait a little until the states are what keepers say and not what the disk last said."""
        if asyncio.get_running_loop().time() >= self._known_by_s:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(self._known_by_s):
                for member in list(self._members.values()):
                    # A launch that goes on is PENDING whether its keeper was found or not.
                    if member.vm.state is not SandboxState.PENDING:
                        await member.vm.known.wait()

    def get(self, sandbox_id: str) -> Vm:
        """A sandbox by id, gone or not.

        Raises:
            Fault: 404.
        """
        member = self._members.get(sandbox_id)
        if member is None:
            raise faults.not_found(f"MicroVM not found: {sandbox_id}", "MicroVM", sandbox_id)
        return member.vm

    async def seen(self, sandbox_id: str) -> Record:
        """A sandbox's record; the reason of one that lives is what was last killed in it.

        Raises:
            Fault: 404.
        """
        record = self.get(sandbox_id).record
        folder = self._world.sandbox_dir(sandbox_id)
        # Hardly ever is anything killed, and a thread costs more than all the rest of a call.
        if record.state_reason or record.state.is_gone or not (folder / FILE_NAME).exists():
            return record
        return record.with_changes(state_reason=await asyncio.to_thread(reason_while_alive, folder))

    def records(self) -> list[Record]:
        """All sandboxes, newest first, gone ones included."""
        found = [member.vm.record for member in self._members.values()]
        return sorted(found, key=lambda record: (record.started_at, record.id), reverse=True)

    @property
    def live_count(self) -> int:
        """Sandboxes that still exist."""
        return sum(member.vm.state is not SandboxState.TERMINATED for member in self._members.values())

    def forget_ended(self) -> None:
        """Let go of records and folders of what has ended so far, which are else kept for a day."""
        self._forget_before = datetime.now(UTC)
        for member in self._members.values():
            member.vm.changed.set()

    async def run(self, params: Mapping[str, Any]) -> Record:
        """Launch a sandbox; the answer comes once it is on disk, before it runs.

        A client token seen before gives the same sandbox again, whatever its state now.

        Raises:
            Fault: 400, 402, 404 as the service has them; 409 for a used token with another request.
        """
        runtime = await runtime_for(params, self._world)
        async with self._launch_lock:
            known = self._replayed(params)
            if known is not None:
                return known
            if self.is_draining:
                raise faults.draining()
            image = check_launch(params, self._world)
            self._check_quota(image.memory_mib)
            endpoint = await self._open_endpoint(0)
            record = new_record(params, image, self._world, endpoint.port, runtime)
            try:
                await self._egress.prepare(record)
                await self._world.records.save(record)
            except BaseException:
                await endpoint.close()
                raise
            await self._add(record, endpoint, self._launch)
            return record

    async def settle(self, vm: Vm, transition: Coroutine[Any, Any, None]) -> None:
        """Begin a transition and wait a little for it; it goes on when the caller leaves or the wait is over.

        Raises:
            Fault: The transition failed within the wait.
        """
        task = self._spawn(self._members[vm.record.id], transition, raises=True)
        done, _ = await asyncio.wait({task}, timeout=SETTLE_S)
        for finished in done:
            finished.result()

    async def kill_guest(self, sandbox_id: str) -> None:
        """End the guest of a sandbox as if it had crashed: no hook is called. One that has ended is left as it is.

        Raises:
            Fault: 404.
        """
        keeper = await find_keeper(self._world, self.get(sandbox_id).record)
        if keeper is not None:
            with contextlib.suppress(SbxError):
                await keeper.terminate(0)

    async def fill_disk(self, sandbox_id: str) -> None:
        """Have the disk of a sandbox count as full. Of one that does not run, nothing is changed.

        Raises:
            Fault: 404.
        """
        keeper = await find_keeper(self._world, self.get(sandbox_id).record)
        if keeper is not None:
            with contextlib.suppress(SbxError):
                await keeper.fill_disk()

    # Inside

    async def _launch(self, vm: Vm) -> None:
        await vm.launch()
        await self._goldens.look_at(vm)

    def _replayed(self, params: Mapping[str, Any]) -> Record | None:
        sandbox_id = self._ids_by_token.get(params.get("clientToken", ""))
        if sandbox_id is None:
            return None
        record = self._members[sandbox_id].vm.record
        if record.fingerprint != fingerprint(params):
            raise faults.conflict("The client token was used before with other parameters", "MicroVM", sandbox_id)
        return record

    def _check_quota(self, memory_mib: int) -> None:
        promised = sum(
            member.vm.record.memory_mib
            for member in self._members.values()
            if member.vm.state is not SandboxState.TERMINATED
        )
        self._world.account.check_memory(promised, memory_mib)
        if promised + memory_mib > self._world.memory_quota_mib:
            raise faults.memory_quota_exceeded()

    async def _reopen(self, record: Record) -> Endpoint | None:
        try:
            return await self._open_endpoint(record.endpoint_port)
        except OSError as exc:
            log.error("%s: its port %d is taken: %s", record.id, record.endpoint_port, exc)
            return None

    async def _with_port(self, record: Record, port: int) -> Record:
        """A record that had to be made anew, with the port its sandbox has from now on."""
        found = record.with_changes(endpoint_port=port)
        with contextlib.suppress(OSError):
            await self._world.records.save(found)
        return found

    async def _reopen_later(self, member: _Member) -> None:
        """The address was promised: wait until whoever took the port leaves it."""
        while member.endpoint is None and not member.vm.is_over:
            await asyncio.sleep(_RETRY_STEP_S)
            with contextlib.suppress(OSError):
                member.endpoint = await self._open_endpoint(member.vm.record.endpoint_port)
                await member.endpoint.serve(member.vm)

    async def _add(
        self, record: Record, endpoint: Endpoint | None, begin: Callable[[Vm], Coroutine[Any, Any, None]]
    ) -> None:
        member = _Member(Vm(record, self._world, self.origins.populate), endpoint, set())
        self._members[record.id] = member
        if record.token_key:
            self._ids_by_token[record.token_key] = record.id
        if endpoint is not None:
            await endpoint.serve(member.vm)
        elif not member.vm.is_over:
            self._spawn(member, self._reopen_later(member))
        self._spawn(member, begin(member.vm))
        self._spawn(member, member.vm.watch_exit())
        self._spawn(member, end_with_program(member.vm))
        self._spawn(member, self._keep_time(member))
        self._spawn(member, self._egress.serve(member.vm))

    def _spawn(self, member: _Member, work: Coroutine[Any, Any, None], *, raises: bool = False) -> asyncio.Task[None]:
        async def guarded() -> None:
            try:
                await work
            except (faults.Fault, SbxError, OSError) as exc:
                if raises:
                    raise
                log.warning("%s: %s", member.vm.record.id, exc)

        task = asyncio.create_task(guarded())
        member.tasks.add(task)
        task.add_done_callback(member.tasks.discard)
        # Retrieved here too, because `settle` may have left before the end.
        task.add_done_callback(lambda ended: None if ended.cancelled() else _log_failure(member, ended))
        return task

    # Time

    async def _keep_time(self, member: _Member) -> None:
        vm = member.vm
        while True:
            vm.changed.clear()
            due = self._due(member)
            if due is not None and due.in_s <= 0:
                if due.step is Step.PRUNE:
                    await self._forget(member)
                    return
                await self._step(member, due)
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(due.in_s if due else None):
                    await vm.changed.wait()

    def _due(self, member: _Member) -> Due | None:
        clock = Clock(
            now=datetime.now(UTC),
            idle_s=member.vm.traffic.idle_s,
            time_scale=self._world.time_scale,
            is_endpoint_open=member.endpoint is not None,
            forget_before=self._forget_before,
        )
        return next_due(member.vm.record, clock)

    async def _step(self, member: _Member, due: Due) -> None:
        try:
            if due.step is Step.SUSPEND:
                await member.vm.suspend(if_idle_s=_idle_window_s(member.vm.record) / self._world.time_scale)
            elif due.step is Step.TERMINATE:
                await member.vm.terminate(due.reason)
            elif member.endpoint is not None:
                await member.endpoint.close()
                member.endpoint = None
        except (faults.Fault, SbxError, OSError) as exc:
            log.warning("%s: could not %s: %s", member.vm.record.id, due.step, exc)
            await asyncio.sleep(_RETRY_STEP_S)

    async def _forget(self, member: _Member) -> None:
        record = member.vm.record
        await asyncio.to_thread(self._world.records.delete, record.id)
        await asyncio.to_thread(shutil.rmtree, self._world.sandbox_dir(record.id), ignore_errors=True)
        if self._ids_by_token.get(record.token_key) == record.id:
            del self._ids_by_token[record.token_key]
        self._egress.forget(record.id)
        del self._members[record.id]


def _idle_window_s(record: Record) -> float:
    return record.idle.max_idle_s if record.idle else 0.0


def _log_failure(member: _Member, task: asyncio.Task[None]) -> None:
    exc = task.exception()
    if exc is not None and not isinstance(exc, faults.Fault | SbxError | OSError):
        log.error("%s: a transition broke", member.vm.record.id, exc_info=exc)
