"""The hooks of a sandbox's life: those of its guest, and those of the program of its image, where it has one."""

from __future__ import annotations

from sbxtui.localcloud import catalog
from sbxtui.localcloud.hooks import Dial, HookOutcome, call_hook
from sbxtui.localcloud.program import GUEST_HOOK_PORT, Program
from sbxtui.localcloud.records import Record

_GUEST_TIMEOUTS_S = {
    "run": catalog.RUN_TIMEOUT_S,
    "suspend": catalog.SUSPEND_TIMEOUT_S,
    "resume": catalog.RESUME_TIMEOUT_S,
    "terminate": catalog.TERMINATE_TIMEOUT_S,
}


async def call_lifecycle_hook(dial: Dial, record: Record, name: str) -> HookOutcome:
    """Call a hook of a sandbox; the first that fails is what is told.

    The guest is first to be told of a beginning, and last of an end.
    """
    program = record.program
    if program is None or not program.argv:
        return await _of_guest(dial, record, name, catalog.HOOK_PORT)
    if name in ("run", "resume"):
        outcome = await _of_guest(dial, record, name, GUEST_HOOK_PORT)
        return await _of_program(dial, record, program, name) if outcome.is_ok else outcome
    outcome = await _of_program(dial, record, program, name)
    return await _of_guest(dial, record, name, GUEST_HOOK_PORT) if outcome.is_ok else outcome


async def _of_guest(dial: Dial, record: Record, name: str, port: int) -> HookOutcome:
    return await call_hook(dial, port, name, timeout_s=_GUEST_TIMEOUTS_S[name], payload=_payload(record, name))


async def _of_program(dial: Dial, record: Record, program: Program, name: str) -> HookOutcome:
    if name not in program.hooks:
        return HookOutcome(name, 200, 0)
    timeout_s = program.hooks[name]
    return await call_hook(dial, program.hook_port, name, timeout_s=timeout_s, payload=_payload(record, name))


def _payload(record: Record, name: str) -> dict[str, str] | None:
    return {"microvmId": record.id, "runHookPayload": record.payload} if name == "run" else None
