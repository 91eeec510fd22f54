"""What is left to say when a command has ended."""

from __future__ import annotations

from sbxtui.cli import show
from sbxtui.cli.call import Call
from sbxtui.cli.killed import KILLED
from sbxtui.core.errors import CommandTimedOut
from sbxtui.core.model import ExecResult


def finish(call: Call, result: ExecResult, *, killed: str = "") -> int:
    """Show what is left to show, and `killed`: what its sandbox's watchdog told of it. Returns the exit code."""
    if call.out.is_json:
        call.out.json(show.exec_json(result))
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
