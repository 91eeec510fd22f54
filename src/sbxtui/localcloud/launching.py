"""A launch from the outside: telling a started sandbox who it is, and why one did not come to be."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from sbxtui.core.errors import RuntimeUnavailable, SbxError
from sbxtui.core.text import harmless_line
from sbxtui.localcloud import catalog
from sbxtui.localcloud.faults import Fault
from sbxtui.localcloud.guestcalls import GuestRefused
from sbxtui.localcloud.hooks import HookOutcome, call_hook, wait_healthy
from sbxtui.localcloud.keeper_client import KeeperClient
from sbxtui.localcloud.lifecycle import call_lifecycle_hook
from sbxtui.localcloud.program import GUEST_HOOK_PORT, GUEST_PORT
from sbxtui.localcloud.programs import start_program
from sbxtui.localcloud.records import Record

HEALTHY_TIMEOUT_S = 60.0

# Puts what a sandbox goes on from into its folder; done already, it does nothing.
Populate = Callable[[Record], Coroutine[Any, Any, None]]


async def nothing_to_populate(record: Record) -> None:
    """Of a sandbox made from an image, all is in the image."""
    del record


async def greet(keeper: KeeperClient, record: Record) -> HookOutcome:
    """Wait for the guest, start the program of the image where it has one, and call the run hook.

    Raises:
        TimeoutError: It does not answer its health check.
        SbxError: The program cannot be started.
    """
    program = record.program
    has_program = program is not None and program.argv
    async with asyncio.timeout(HEALTHY_TIMEOUT_S):
        await wait_healthy(keeper.dial, GUEST_PORT if has_program else catalog.AGENT_PORT)
    if program is None or not has_program:
        return await call_lifecycle_hook(keeper.dial, record, "run")
    guest = await call_hook(
        keeper.dial, GUEST_HOOK_PORT, "run", timeout_s=catalog.RUN_TIMEOUT_S, payload={"microvmId": record.id}
    )
    try:
        if guest.is_ok:
            await start_program(keeper.dial, program)
    except GuestRefused as exc:
        raise RuntimeUnavailable(f"The main process could not be started: {exc}") from exc
    return await call_lifecycle_hook(keeper.dial, record, "run")


def launch_problem(exc: SbxError | Fault | OSError) -> str:
    """Why a launch failed, as a `stateReason`."""
    match exc:
        case SbxError():
            return harmless_line(exc.message)
        case Fault():
            return harmless_line(exc.body.message or exc.body.code)
        case TimeoutError():
            return f"The guest did not answer its health check within {HEALTHY_TIMEOUT_S:g} s."
        case OSError():
            return harmless_line(f"The sandbox could not be started: {exc.strerror or exc}")
