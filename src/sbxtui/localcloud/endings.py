"""How a sandbox ended, as a `stateReason` in the platform's words where it has them."""

from __future__ import annotations

from pathlib import Path

from sbxtui.core.kills import FILE_NAME, Kills
from sbxtui.core.model import SandboxState
from sbxtui.localcloud.spec import ExitInfo, read_exit

_KEEPER_KILLED = "The sandbox's keeper was killed and left no record."
_KEEPER_GONE = "The sandbox ended while the local cloud was not watching; its keeper left no record."


def exit_reason(info: ExitInfo) -> str:
    """Of a sandbox that ended by itself while it was watched."""
    match info.reason:
        case "keeper-died":
            return _KEEPER_KILLED
        case "limit":
            limit = info.limit or "a limit of the sandbox"
            return f"Container Stopped with Exit Code: {info.exit_code} (the guest was killed: {limit})"
        case _:
            return f"Container Stopped with Exit Code: {info.exit_code}"


def reason_while_alive(sandbox_dir: Path) -> str:
    """Of one that lives: the last that was killed in it for a limit; nothing while all is well."""
    try:
        return Kills.from_json((sandbox_dir / FILE_NAME).read_bytes()).words
    except (OSError, ValueError):
        return ""


def reason_without_keeper(state: SandboxState, sandbox_dir: Path) -> str:
    """Of one whose keeper is gone after a restart; `state` is the last that was written down."""
    if state is SandboxState.TERMINATING:
        return "Success."
    info = read_exit(sandbox_dir)
    return exit_reason(info) if info and info.reason != "keeper-died" else _KEEPER_GONE
