"""A launch from the outside: telling a started sandbox who it is, and why one did not come to be."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from sbxtui.core.errors import SbxError
from sbxtui.core.text import harmless_line
from sbxtui.localcloud import catalog
from sbxtui.localcloud.faults import Fault
from sbxtui.localcloud.hooks import HookOutcome, call_hook, wait_healthy
from sbxtui.localcloud.keeper_client import KeeperClient
from sbxtui.localcloud.records import Record

HEALTHY_TIMEOUT_S = 60.0

# Puts what a sandbox goes on from into its folder; done already, it does nothing.
Populate = Callable[[Record], Coroutine[Any, Any, None]]


async def nothing_to_populate(record: Record) -> None:
    """Of a sandbox made from an image, all is in the image."""
    del record


async def greet(keeper: KeeperClient, record: Record) -> HookOutcome:
    """Wait for the guest and call its run hook.

    Raises:
        TimeoutError: It does not answer its health check.
    """
    async with asyncio.timeout(HEALTHY_TIMEOUT_S):
        await wait_healthy(keeper.dial, catalog.AGENT_PORT)
    payload = {"microvmId": record.id, "runHookPayload": record.payload}
    return await call_hook(keeper.dial, catalog.HOOK_PORT, "run", timeout_s=catalog.RUN_TIMEOUT_S, payload=payload)


def launch_problem(exc: SbxError | Fault | OSError) -> str:
    """Why a launch failed, as a `stateReason`."""
    match exc:
        case SbxError():
            return harmless_line(exc.message)
        case Fault():
            return harmless_line(exc.body.message)
        case TimeoutError():
            return f"The guest did not answer its health check within {HEALTHY_TIMEOUT_S:g} s."
        case OSError():
            return harmless_line(f"The sandbox could not be started: {exc.strerror or exc}")
