"""Waiting for a sandbox: until it ends, or for some work unless it does."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from sbxtui.core.errors import GuestUnreachable
from sbxtui.localcloud import faults
from sbxtui.localcloud.keeper_client import KeeperClient
from sbxtui.localcloud.keeper_save import find_saved
from sbxtui.localcloud.keeper_sweep import sweep_one
from sbxtui.localcloud.spec import ExitInfo, SandboxSpec, read_exit
from sbxtui.localcloud.world import has_living_keeper

# A call right after a restart waits this long for what a sandbox's keeper says.
LOOK_UP_TIMEOUT_S = 15.0
_RETRY_S = 0.1
T = TypeVar("T")


class NotReachable(Exception):
    """The endpoint cannot take a request now; the proxy answers 502."""


async def until_known(known: asyncio.Event, sandbox_id: str) -> None:
    """Wait until a sandbox's keeper was looked for.

    Raises:
        Fault: 500, it does not answer.
    """
    try:
        async with asyncio.timeout(LOOK_UP_TIMEOUT_S):
            await known.wait()
    except TimeoutError as exc:
        raise faults.internal(f"The keeper of MicroVM {sandbox_id} does not answer", retry_after_s=5) from exc


async def wait_end(keeper: KeeperClient, spec: SandboxSpec) -> ExitInfo | None:
    """How the sandbox ended, when it has; also when its keeper was killed or is too busy to answer.

    None when only its keeper did, and it sleeps on disk.
    """
    while True:
        try:
            return await keeper.wait_exit()
        except GuestUnreachable:
            await asyncio.sleep(_RETRY_S)
            if not has_living_keeper(keeper.keeper_socket):
                # It took nothing away; the next start would, but nobody knows when that is.
                await asyncio.to_thread(sweep_one, spec)
                if find_saved(spec.sandbox_dir) is not None:
                    return None
                return read_exit(keeper.sandbox_dir) or ExitInfo(exit_code=137, signal=9, reason="keeper-died")


async def unless_set(event: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """The work's result, or None, and no more of the work, as soon as the event is set."""
    task = asyncio.ensure_future(work)
    ending = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait({task, ending}, return_when=asyncio.FIRST_COMPLETED)
        return None if event.is_set() else task.result()
    finally:
        task.cancel()
        ending.cancel()
        await asyncio.gather(task, ending, return_exceptions=True)
