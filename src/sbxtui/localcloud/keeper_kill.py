"""Ending a keeper that does not answer: found by its command line, held by a descriptor, so that no other is hit."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Sequence
from pathlib import Path

from sbxtui.localcloud.keeper_processes import (
    KEEPER_MODULE,
    command_words,
    descendants,
    pids_called,
    read_process,
    send_signal,
)
from sbxtui.localcloud.keeper_sweep import sweep_one
from sbxtui.localcloud.spec import SandboxSpec

_GONE_TIMEOUT_MS = 5000


def kill_keeper(spec: SandboxSpec) -> None:
    """SIGKILL the keeper of exactly this sandbox, which takes the sandbox along, and remove what both left. Blocking.

    Without such a keeper, only what one left is removed.
    """
    for pid in pids_called(lambda words: _is_keeper_of(words, spec)):
        _kill(pid, spec)
    sweep_one(spec)


def _is_keeper_of(words: Sequence[bytes], spec: SandboxSpec) -> bool:
    return os.fsencode(spec.spec_file) in words and any(KEEPER_MODULE.encode() in word for word in words)


def _is_ours(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}").stat().st_uid == os.geteuid()
    return False


def _kill(pid: int, spec: SandboxSpec) -> None:
    with contextlib.suppress(ProcessLookupError):
        handle = os.pidfd_open(pid)
        try:
            # Looked at again now that the number cannot be another's unnoticed.
            if not (_is_ours(pid) and _is_keeper_of(command_words(pid), spec)):
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
