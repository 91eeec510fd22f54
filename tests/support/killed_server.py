"""Ending the server inside a sandbox, which its init starts again."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.support.guest_process import children_of
from tests.support.sandboxes import processes_naming
from tests.support.sbx import Sbx


def kill_server(sbx: Sbx, sandbox: str = "app") -> None:
    """SIGKILL it."""
    sandbox_id = sbx.ok("inspect", sandbox, "--json").json["id"]
    (server,) = [pid for pid in _below(processes_naming(sandbox_id)) if b"sbxguest.server" in _command_of(pid)]
    os.kill(server, signal.SIGKILL)


def _below(pids: list[int]) -> set[int]:
    found = set(pids)
    new = found
    while new:
        new = {child for pid in new for child in children_of(pid)} - found
        found |= new
    return found


def _command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
