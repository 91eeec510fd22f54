"""What is left to say when a command has ended."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from types import MappingProxyType

from sbxtui.cli import show
from sbxtui.cli.call import Call
from sbxtui.cli.killed import KILLED
from sbxtui.core.errors import CommandTimedOut, SbxError
from sbxtui.core.jobs import Job
from sbxtui.core.model import ExecResult

_LEAVE_S = 5.0


def finish(
    call: Call, result: ExecResult, *, killed: str = "", more: Mapping[str, object] = MappingProxyType({})
) -> int:
    """Show what is left to show; returns the exit code.

    Args:
        call: The call.
        result: Of the command.
        killed: What its sandbox's watchdog told of it.
        more: What else belongs into the document of `--json`.

    Raises:
        CommandTimedOut: It ran out of its time.
    """
    if call.out.is_json:
        call.out.json({**show.exec_json(result), **more})
    if result.truncated:
        call.out.note("note: the guest could not keep all output; a part of it is missing")
    if result.lingering:
        call.out.note("note: the command ended, but something it started still runs and holds its output open")
    if result.exit_code == KILLED and not result.timed_out:
        guess = "killed with signal 9, as happens to what goes over the limits of its sandbox"
        call.out.note(f"note: {killed or guess}")
    if result.timed_out:
        timeout = getattr(call.args, "timeout", None)
        limit = f"{timeout:g} s" if timeout else "its limit"
        raise CommandTimedOut(f"the command did not end within {limit}; it was killed with all its children")
    return result.exit_code


async def kill_and_leave(call: Call, job: Job) -> None:
    """End a job and everything it started, as well as can be done in a moment."""
    with contextlib.suppress(SbxError, TimeoutError):
        async with asyncio.timeout(_LEAVE_S):
            await call.services.jobs.signal(job, "KILL")
