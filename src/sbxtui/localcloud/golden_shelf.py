"""Makes the golden images of a home: one for each kind of sandbox that had to start cold, when there is time for it.

A sandbox of that kind is started for nobody, saved before it is told who it is, and what it saved becomes the image.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from dataclasses import replace

from sbxtui.core.errors import SbxError
from sbxtui.core.model import SandboxState
from sbxtui.localcloud import catalog
from sbxtui.localcloud.golden import shelve
from sbxtui.localcloud.hooks import call_hook, wait_healthy
from sbxtui.localcloud.keeper_client import KeeperClient, start_keeper
from sbxtui.localcloud.keeper_kill import kill_keeper
from sbxtui.localcloud.keeper_place import remove_trees
from sbxtui.localcloud.keeper_save import find_saved
from sbxtui.localcloud.runtimes.choose import find_runtime
from sbxtui.localcloud.spec import SandboxSpec
from sbxtui.localcloud.vms import Vm
from sbxtui.localcloud.world import World

log = logging.getLogger(__name__)

# Names of sandboxes that are nobody's; no record has one.
_TRIAL = "golden-"
_READY_S = 60.0


class GoldenShelf:
    """Belongs to one event loop. `close` ends what is being made."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._tried: set[str] = set()
        self._making: set[asyncio.Task[None]] = set()
        self._turn = asyncio.Lock()

    async def look_at(self, vm: Vm) -> None:
        """After a launch: begin to make the image it lacked, if it lacked one."""
        if vm.state is not SandboxState.RUNNING or not find_runtime(vm.record.runtime).has_own_kernel:
            return
        keeper = KeeperClient(
            self._world.keeper_socket(vm.record.id),
            self._world.control_dir(vm.record.id),
            self._world.sandbox_dir(vm.record.id),
        )
        status = await keeper.status()
        key = status.golden_key
        if status.begun_from != "cold" or not key or key in self._tried:
            return
        self._tried.add(key)
        task = asyncio.create_task(self._make(self._world.spec_of(vm.record), key))
        self._making.add(task)
        task.add_done_callback(self._making.discard)

    async def close(self) -> None:
        """Give up what is not done; nothing of it is left."""
        for task in self._making:
            task.cancel()
        await asyncio.gather(*self._making, return_exceptions=True)

    async def _make(self, spec: SandboxSpec, key: str) -> None:
        async with self._turn:
            try:
                await self._try(trial_of(spec, self._world), key)
                log.info("made a golden image for sandboxes like %s", spec.sandbox_id)
            except (SbxError, OSError, TimeoutError) as exc:
                log.warning("no golden image for sandboxes like %s: %s", spec.sandbox_id, exc)

    async def _try(self, trial: SandboxSpec, key: str) -> None:
        try:
            keeper = await start_keeper(trial)
            async with asyncio.timeout(_READY_S):
                await wait_healthy(keeper.dial, catalog.AGENT_PORT)
            # It loads what commands and files need, so that no sandbox has to.
            await call_hook(keeper.dial, trial.hook_port, "validate", timeout_s=_READY_S)
            await keeper.freeze()
            saved = find_saved(trial.sandbox_dir)
            if saved is not None:
                await asyncio.to_thread(shelve, saved, trial.image_tree_parent, key)
        finally:
            await asyncio.shield(asyncio.to_thread(remove_trial, trial))


def trial_of(spec: SandboxSpec, world: World) -> SandboxSpec:
    """A sandbox of the same kind that is nobody's."""
    name = f"{_TRIAL}{uuid.uuid4().hex[:12]}"
    return replace(
        spec,
        sandbox_id=name,
        hostname="sandbox",
        sandbox_dir=world.sandbox_dir(name),
        control_dir=world.control_dir(name),
        keeper_socket=world.keeper_socket(name),
    )


def clear_trials(world: World) -> None:
    """Remove what a killed process left of images it was making. Blocking."""
    for file in world.trees_dir.glob(f"{_TRIAL}*/spec.json"):
        with contextlib.suppress(OSError, ValueError):
            trial = SandboxSpec.from_json(file.read_text())
            # Trees may be shared by homes; these sockets are of this one.
            if trial.keeper_socket.parent == world.sockets_dir:
                remove_trial(trial)


def remove_trial(trial: SandboxSpec) -> None:
    """End a sandbox that is nobody's, and remove all it had. Blocking."""
    remove_trees([trial.sandbox_dir / "saved"])
    kill_keeper(trial)
    remove_trees([trial.sandbox_dir])
