"""What is left to say when a command has ended."""

from __future__ import annotations

from sbxtui.cli.call import Call
from sbxtui.cli.killed import KILLED
from sbxtui.core.documents import exec_json
from sbxtui.core.errors import CommandTimedOut
from sbxtui.core.model import ExecResult


def finish(call: Call, result: ExecResult, *, killed: str | None = None) -> int:
    """Show what is left to show; returns the exit code.

    Args:
        call: The call.
        result: How the command ended.
        killed: What its sandbox's watchdog told of it; None where nobody looked.
    """
    if call.out.is_json:
        call.out.json(exec_json(result))
    if result.truncated:
        call.out.note("note: the guest could not keep all output; a part of it is missing")
    if result.lingering:
        call.out.note("note: the command ended, but something it started still runs and holds its output open")
    if why := _why_killed(result, killed):
        call.out.note(f"note: {why}")
    if result.timed_out:
        timeout = getattr(call.args, "timeout", None)
        limit = f"{timeout:g} s" if timeout else "its limit"
        raise CommandTimedOut(f"the command did not end within {limit}; it was killed with all its children")
    return result.exit_code


def _why_killed(result: ExecResult, told: str | None) -> str:
    """Why a command was killed, in words; empty where a signal of somebody did it, who knows."""
    if result.exit_code != KILLED or result.timed_out:
        return ""
    if told:
        return told
    if result.oom:
        return "killed with signal 9: its sandbox ran out of memory"
    return "" if told is not None else "killed with signal 9, maybe for going over a limit of its sandbox"
