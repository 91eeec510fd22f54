"""Finding a sandbox's keeper again after a restart of the local cloud."""

from __future__ import annotations

import asyncio

from sbxtui.core.model import SandboxState
from sbxtui.localcloud.keeper_client import KeeperClient, adopt_keeper
from sbxtui.localcloud.records import Record
from sbxtui.localcloud.spec import read_exit
from sbxtui.localcloud.world import World, has_living_keeper

ADOPT_TIMEOUT_S = 5.0
_RETRY_S = 0.1


async def find_keeper(world: World, record: Record) -> KeeperClient | None:
    """The keeper of a sandbox; None when it has none, or what that left tells how the sandbox ended."""
    directory, keeper_socket = world.sandbox_dir(record.id), world.keeper_socket(record.id)
    # A keeper that was being started when the last process died may need a moment until it listens.
    was_begun = record.state is SandboxState.PENDING and (directory / "spec.json").exists()
    deadline = asyncio.get_running_loop().time() + (ADOPT_TIMEOUT_S if was_begun else 0)
    while (keeper := await adopt_keeper(keeper_socket)) is None:
        is_late = asyncio.get_running_loop().time() >= deadline
        if read_exit(directory) is not None or (is_late and not has_living_keeper(keeper_socket)):
            return None
        await asyncio.sleep(_RETRY_S)
    return keeper
