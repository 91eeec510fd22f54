"""Services whose sandbox is a real guest: the cloud around it is in memory, jobs, shells and the store are real."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from sbxtui.core.model import Context, ContextKind, Registration
from sbxtui.wiring import Services
from tests.support.direct import CONTEXT, direct_services, know
from tests.support.fake_services import FakeCloud, FakeSandboxes, FakeServices, sandbox
from tests.support.guest_process import GuestProcess, running_guest


@dataclass(frozen=True, slots=True)
class GuestScene:
    """A guest, the real services that know it as `app`, and the cloud that says how it is."""

    cloud: FakeCloud
    real: Services
    row: Registration
    guest: GuestProcess

    def services(self, name: str) -> Services:
        """What a dashboard gets; closed with the scene, whatever the dashboard closes."""
        return cast(Services, _GuestServices(self))


class _GuestServices(FakeServices):
    def __init__(self, scene: GuestScene) -> None:
        super().__init__(scene.real.settings, scene.cloud)
        self.store = scene.real.store
        self.jobs = scene.real.jobs  # type: ignore[assignment]  # the real ones
        self.shells = scene.real.shells
        self.sync_desk = scene.real.sync_desk  # type: ignore[assignment]  # the real one
        self.job_watch = scene.real.job_watch  # type: ignore[assignment]  # the real one
        self.sandboxes = _RealRows(scene)

    def close(self) -> None:
        pass


class _RealRows(FakeSandboxes):
    def __init__(self, scene: GuestScene) -> None:
        super().__init__(scene.cloud)
        self._scene = scene

    async def find(self, reference: str) -> Registration:
        return self._scene.real.registry.find(CONTEXT, reference)


@asynccontextmanager
async def guest_scene(folder: Path) -> AsyncIterator[GuestScene]:
    """A guest in `folder` and everything around it; ended afterwards."""
    real = direct_services(folder / "home")
    try:
        async with running_guest(folder) as guest:
            row = know(real, guest.url)
            one = sandbox(
                row.name, context=CONTEXT, id=row.id, created_at=row.created_at, endpoint=row.endpoint, facts={}
            )
            context = Context(CONTEXT, ContextKind.AWS, region="us-east-1")
            yield GuestScene(FakeCloud(context=context, sandboxes=[one]), real, row, guest)
    finally:
        real.close()
