"""Ending a keeper that does not answer: found by its command line, held by a descriptor, so that no other is hit."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from pathlib import Path

from sbxtui.localcloud.keeper_processes import descendants, read_process, send_signal
from sbxtui.localcloud.keeper_sweep import sweep_one
from sbxtui.localcloud.spec import SandboxSpec

KEEPER_MODULE = "sbxtui.localcloud.keeper"
_GONE_TIMEOUT_MS = 5000


def kill_keeper(spec: SandboxSpec) -> None:
    """SIGKILL the keeper of exactly this sandbox, which takes the sandbox along, and remove what both left. Blocking.

    Without such a keeper, only what one left is removed.
    """
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal() and _is_keeper(folder, spec):
            _kill(int(folder.name), folder, spec)
    sweep_one(spec)


def _is_keeper(folder: Path, spec: SandboxSpec) -> bool:
    try:
        words = (folder / "cmdline").read_bytes().split(b"\0")
        is_ours = folder.stat().st_uid == os.geteuid()
    except OSError:
        return False
    return is_ours and os.fsencode(spec.spec_file) in words and any(KEEPER_MODULE.encode() in word for word in words)


def _kill(pid: int, folder: Path, spec: SandboxSpec) -> None:
    with contextlib.suppress(ProcessLookupError):
        handle = os.pidfd_open(pid)
        try:
            # Looked at again now that the number cannot be another's unnoticed.
            if not _is_keeper(folder, spec):
                return
            below = descendants(pid)
            signal.pidfd_send_signal(handle, signal.SIGKILL)
            gone = select.poll()
            gone.register(handle, select.POLLIN)
            gone.poll(_GONE_TIMEOUT_MS)
            # Most ends by itself without its keeper; what does not is known by number and start.
            for process in below.values():
                found = read_process(process.pid)
                if found is not None and found.start_ticks == process.start_ticks:
                    send_signal([process.pid], signal.SIGKILL)
        finally:
            os.close(handle)
