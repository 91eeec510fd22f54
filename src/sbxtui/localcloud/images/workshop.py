"""The sandbox in which a build's steps are done, and the one in which its result is tried. Both are nobody's."""

from __future__ import annotations

import asyncio
import json
import shlex
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urlencode

from sbxtui.core.errors import RuntimeUnavailable
from sbxtui.localcloud.copies import COPY_FOLDER, Copy, copy_again
from sbxtui.localcloud.golden_shelf import remove_trial, trial_of
from sbxtui.localcloud.guestcalls import GuestCalls
from sbxtui.localcloud.hooks import call_hook, wait_healthy
from sbxtui.localcloud.images import recipe
from sbxtui.localcloud.images.buildlog import BuildLog
from sbxtui.localcloud.images.context import Packed
from sbxtui.localcloud.images.layers import Layers
from sbxtui.localcloud.images.probation import BuildFailed
from sbxtui.localcloud.keeper_client import KeeperClient, start_keeper
from sbxtui.localcloud.spec import SandboxSpec
from sbxtui.localcloud.world import World

STEP_S = 1800.0
_BEGIN_S = 60.0
_FAILED = "The container image build failed."


@dataclass(frozen=True, slots=True)
class Task:
    """A step, the key of the sandbox behind it, and what a COPY carries."""

    step: recipe.Step
    key: str
    packed: Packed | None = None


@dataclass(frozen=True, slots=True)
class Workshop:
    """Makes sandboxes like `spec`, and works in them; `said` is told of it."""

    spec: SandboxSpec
    world: World
    said: BuildLog

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
            yield keeper
        finally:
            await asyncio.shield(asyncio.to_thread(remove_trial, trial))

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
                        await keeper.copy(layers.folder_of(task.key))
                    case recipe.MakeFolder():
                        await self._make_folder(guest, task.step.path)
                    case recipe.Copy():
                        await self._copy(guest, task.packed)

    async def _run(self, guest: GuestCalls, step: recipe.Run) -> None:
        job = {
            "id": f"build-{uuid.uuid4().hex[:16]}",
            "argv": list(step.argv),
            "env": dict(step.env),
            "cwd": step.cwd,
            "log": "hold",
            "timeout_s": STEP_S,
            **({"user": step.user} if step.user else {}),
        }
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
            self.said.say(f"{shlex.quote(path)} cannot be made: only /work, /home/sandbox and /tmp can be written here")
            raise BuildFailed(_FAILED)

    async def _copy(self, guest: GuestCalls, packed: Packed | None) -> None:
        assert packed is not None, "every COPY was packed"
        query = urlencode({"path": packed.folder, "parents": 1})
        report = await guest.ask("PUT", f"/v2/files/tar?{query}", packed.tar, kind="application/x-tar")
        if report.get("problem_count"):
            self.said.say(f"not all could be copied: {json.dumps(report['problems'])[:500]}")
            raise BuildFailed(_FAILED)
