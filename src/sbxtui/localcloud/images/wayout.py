"""The way out of a build's sandboxes: the same as any sandbox's, and what it refuses is told in the build's log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from sbxtui.core.egress import NetworkPolicy
from sbxtui.core.hosts import authority
from sbxtui.core.model import SandboxState
from sbxtui.localcloud.egress.conversation import Ways
from sbxtui.localcloud.egress.gateway import Gateway
from sbxtui.localcloud.egress.log import NetworkLog
from sbxtui.localcloud.egress.service import LOG_NAME
from sbxtui.localcloud.images.buildlog import BuildLog
from sbxtui.localcloud.spec import SandboxSpec

# On the platform a build reaches what a sandbox reaches that names no connector.
USUAL_NETWORK = NetworkPolicy(is_internet=True)


@dataclass(slots=True)
class _Life:
    """Of a sandbox that runs until its work is done."""

    is_over: bool = False

    @property
    def state(self) -> SandboxState:
        return SandboxState.RUNNING


@dataclass(frozen=True, slots=True)
class WayOut:
    """What sandboxes of one build may reach, and how that is reached."""

    policy: NetworkPolicy
    ways: Ways

    @asynccontextmanager
    async def of(self, spec: SandboxSpec, said: BuildLog) -> AsyncIterator[None]:
        """Have a running sandbox reach it until the end."""
        log = NetworkLog(spec.sandbox_dir / LOG_NAME)
        gateway = Gateway(spec.sandbox_id, spec.control_dir, self.policy, log)
        serving = asyncio.create_task(gateway.serve(_Life(), self.ways))
        try:
            yield
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
            refused = [entry for entry in log.after(0) if entry["action"] == "refused" and entry.get("host")]
            for place in dict.fromkeys(authority(str(entry["host"]), int(entry["port"])) for entry in refused):
                said.say(f"{place} was refused: builds reach {self.policy.text}")
