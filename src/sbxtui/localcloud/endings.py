"""How a sandbox ended, as a `stateReason` in the platform's words where it has them."""

from __future__ import annotations

from pathlib import Path

from sbxtui.core.model import SandboxState
from sbxtui.localcloud.spec import ExitInfo, read_exit

_KEEPER_GONE = "The sandbox ended while the local cloud was not watching; its keeper left no record."


def exit_reason(info: ExitInfo) -> str:
    """Of a sandbox that ended by itself."""
    match info.reason:
        case "keeper-died":
            return _KEEPER_GONE
        case "limit":
            return f"Container Stopped with Exit Code: {info.exit_code} (the guest went over a limit of the sandbox)"
        case _:
            return f"Container Stopped with Exit Code: {info.exit_code}"


def reason_without_keeper(state: SandboxState, sandbox_dir: Path) -> str:
    """Of one whose keeper is gone after a restart; `state` is the last that was written down."""
    if state is SandboxState.TERMINATING:
        return "Success."
    info = read_exit(sandbox_dir)
    return exit_reason(info) if info else _KEEPER_GONE
