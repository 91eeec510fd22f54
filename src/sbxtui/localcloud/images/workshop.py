"""The sandbox in which a build's steps are done, and the one in which its result is tried. Both are nobody's."""

from __future__ import annotations

import asyncio
import json
import shlex
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlencode

from sbxtui.core.errors import RuntimeUnavailable
from sbxtui.localcloud.copies import COPY_FOLDER, Copy, copy_again, find_copy
from sbxtui.localcloud.golden_shelf import remove_trial, trial_of
from sbxtui.localcloud.guestcalls import GuestCalls
from sbxtui.localcloud.hooks import call_hook, wait_healthy
from sbxtui.localcloud.images import recipe
from sbxtui.localcloud.images.buildlog import BuildLog
from sbxtui.localcloud.images.context import Packed
from sbxtui.localcloud.images.layers import Layers
from sbxtui.localcloud.images.probation import BuildFailed
from sbxtui.localcloud.images.wayout import WayOut
from sbxtui.localcloud.keeper_client import KeeperClient, start_keeper
from sbxtui.localcloud.ownroot import seal
from sbxtui.localcloud.runtimes.own_root import APT_CONF
from sbxtui.localcloud.spec import SandboxSpec
from sbxtui.localcloud.world import World

STEP_S = 1800.0
_BEGIN_S = 60.0
_ENV_OF_ROOT = {"HOME": "/root", "APT_CONFIG": APT_CONF}
_FAILED = "The container image build failed."


@dataclass(frozen=True, slots=True)
class Task:
    """A step, the key of the sandbox behind it, and what a COPY carries."""

    step: recipe.Step
    key: str
    packed: Packed | None = None


@dataclass(frozen=True, slots=True)
class Workshop:
    """Makes sandboxes like `spec`, which reach what `way_out` says, and works in them; `said` is told of it."""

    spec: SandboxSpec
    world: World
    said: BuildLog
    way_out: WayOut

    @asynccontextmanager
    async def sandbox(self, begin_with: Copy | None) -> AsyncIterator[KeeperClient]:
        """One that goes on from a copy, or a fresh one; it is gone at the end.

        Raises:
            SbxError, TimeoutError, OSError: It does not begin.
        """
        trial = trial_of(self.spec, self.world)
        try:
            if begin_with is not None:
                await asyncio.to_thread(copy_again, begin_with, trial.sandbox_dir / COPY_FOLDER)
            keeper = await start_keeper(trial)
            async with asyncio.timeout(_BEGIN_S):
                await wait_healthy(keeper.dial, trial.agent_port)
                told = {"microvmId": trial.sandbox_id}
                outcome = await call_hook(keeper.dial, trial.hook_port, "run", timeout_s=_BEGIN_S, payload=told)
            if not outcome.is_ok:
                raise RuntimeUnavailable(outcome.reason)
            async with self.way_out.of(trial, self.said):
                yield keeper
        finally:
            await asyncio.shield(asyncio.to_thread(remove_trial, trial))

    def as_launched(self) -> Workshop:
        """For sandboxes as they are launched."""
        return replace(self, spec=replace(self.spec, is_build=False))

    async def do_runs(
        self, tasks: Sequence[Task], begin_with: Copy | None, layers: Layers
    ) -> tuple[Sequence[Task], Copy | None]:
        """Where the root can be written: do all up to the last RUN, each in a sandbox that goes on from the one before.

        Returns:
            What is left to do, and what to go on from.

        Raises:
            As `sandbox` and `do`.
        """
        ends = [place for place, task in enumerate(tasks, 1) if isinstance(task.step, recipe.Run)]
        begun = 0
        for end in ends if self.spec.is_build else ():
            async with self.sandbox(begin_with) as keeper:
                await self.do(tasks[begun:end], keeper, layers)
            begin_with = await asyncio.to_thread(find_copy, layers.folder_of(tasks[end - 1].key))
            begun = end
        return tasks[begun:], begin_with

    async def keep(self, keeper: KeeperClient, folder: Path) -> str:
        """Have a copy of the sandbox written that others go on from; its kind."""
        kind = await keeper.copy(folder)
        if self.spec.is_build:
            await asyncio.to_thread(seal, folder)
        return kind

    async def do(self, tasks: Sequence[Task], keeper: KeeperClient, layers: Layers) -> None:
        """Do the steps in order; what each RUN made is kept as a layer.

        Raises:
            BuildFailed: A command failed.
            GuestRefused, SbxError, OSError, TimeoutError: A step could not be done.
        """
        guest = GuestCalls(keeper.dial, self.spec.agent_port)
        for task in tasks:
            self.said.say(f"step {recipe.words_of(task.step)}")
            async with asyncio.timeout(STEP_S):
                match task.step:
                    case recipe.Run():
                        await self._run(guest, task.step)
                        await self.keep(keeper, layers.folder_of(task.key))
                    case recipe.MakeFolder():
                        await self._make_folder(guest, task.step.path)
                    case recipe.Copy():
                        await self._copy(guest, task.packed)

    async def _run(self, guest: GuestCalls, step: recipe.Run) -> None:
        job = {
            "id": f"build-{uuid.uuid4().hex[:16]}",
            "argv": list(step.argv),
            "env": {**(_ENV_OF_ROOT if self.spec.is_build else {}), **step.env},
            "cwd": step.cwd,
            "log": "hold",
            "timeout_s": STEP_S,
            **({"user": step.user} if step.user and not self.spec.is_build else {}),
        }
        if step.user and self.spec.is_build:
            self.said.say(f"all users are one here: what runs as {step.user} elsewhere runs as root")
        code = await guest.run(job, self.said.output)
        self.said.end_output()
        if code:
            self.said.say(f"line {step.line}: the command ended with exit code {code}")
            raise BuildFailed(_FAILED)

    async def _make_folder(self, guest: GuestCalls, path: str) -> None:
        job = {"id": f"build-{uuid.uuid4().hex[:16]}", "argv": ["/bin/mkdir", "-p", path], "log": "hold"}
        code = await guest.run(job, self.said.output)
        self.said.end_output()
        if code:
            why = "" if self.spec.is_build else ": only /work, /home/sandbox and /tmp can be written here"
            self.said.say(f"{shlex.quote(path)} cannot be made{why}")
            raise BuildFailed(_FAILED)

    async def _copy(self, guest: GuestCalls, packed: Packed | None) -> None:
        assert packed is not None, "every COPY was packed"
        query = urlencode({"path": packed.folder, "parents": 1})
        report = await guest.ask("PUT", f"/v2/files/tar?{query}", packed.tar, kind="application/x-tar")
        if report.get("problem_count"):
            self.said.say(f"not all could be copied: {json.dumps(report['problems'])[:500]}")
            raise BuildFailed(_FAILED)
