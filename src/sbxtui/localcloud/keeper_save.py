"""Suspending a sandbox to disk: its kernel writes processes, memory and files down and ends; another goes on with them.

What is saved is good for one restore, by the same runsc and the same copy of the guest; both are named in it.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from sbxtui.core.errors import RuntimeUnavailable
from sbxtui.localcloud.copies import FILES, MEMORY, Copy, copy_files, copy_memory, find_copy, finish_copy
from sbxtui.localcloud.keeper_place import remove_trees
from sbxtui.localcloud.keeper_start import guest_answers
from sbxtui.localcloud.runtimes.base import Started
from sbxtui.localcloud.runtimes.runsc import CONTAINER, wait_for
from sbxtui.localcloud.spec import SandboxSpec, write_private

SAVE_TIMEOUT_S = 120.0
_PARK_TIMEOUT_S = 10.0
_WAKE_TIMEOUT_S = 30.0
_SIGUSR1 = "10"


def find_saved(sandbox_dir: Path) -> Copy | None:
    """The saved sandbox of this folder; None if there is none, or saving was cut short."""
    return find_copy(sandbox_dir / "saved")


def save(spec: SandboxSpec, started: Started, mark: str) -> str:
    """Write a running sandbox down and end it; an empty string, or why it failed and runs on (or has ended).

    Args:
        spec: Which.
        started: What runs.
        mark: As in `open_up_again`, for when it fails.
    """
    assert started.kernel is not None
    runsc = started.kernel.runsc
    folder = spec.sandbox_dir / "saved"
    remove_trees([folder])
    folder.mkdir(mode=0o700)
    if runsc.uid is not None and runsc.gid is not None:
        os.chown(folder, runsc.uid, runsc.gid)
    remove_trees([spec.control_dir / "open"])
    try:
        _park(spec, started)
        options: tuple[str, ...] = ("-compression=none", "-exclude-committed-zero-pages", f"--image-path={folder}")
        if runsc.platform == "ptrace":
            # Builds so old know neither.
            options = options[2:]
        runsc.call("checkpoint", *options, timeout_s=SAVE_TIMEOUT_S)
    except RuntimeUnavailable as exc:
        remove_trees([folder])
        open_up_again(spec, started, mark)
        return f"saving failed: {exc.message}"
    wait_for(started.root_pid, _PARK_TIMEOUT_S)
    finish_copy(folder, MEMORY, spec.prepared)
    return ""


def _park(spec: SandboxSpec, started: Started) -> None:
    """No process that has a socket of the host can be saved: let the bridge take its own away."""
    assert started.kernel is not None
    runsc = started.kernel.runsc
    if wait_for(runsc.spawn("kill", CONTAINER, _SIGUSR1), _PARK_TIMEOUT_S):
        raise RuntimeUnavailable("its first process cannot be reached")
    deadline = time.monotonic() + _PARK_TIMEOUT_S
    while os.path.lexists(spec.bridge_socket):
        if time.monotonic() > deadline:
            raise RuntimeUnavailable("its bridge does not let go")
        time.sleep(0.002)


def open_up_again(spec: SandboxSpec, started: Started, mark: str) -> None:
    """Let the bridge listen. By another mark than before, the guest sees that it was restored."""
    assert started.kernel is not None
    runsc = started.kernel.runsc
    marker = spec.control_dir / "open"
    # Root inside may put anything into that folder: what is in the way goes, and no link of its is followed. Where it
    # is faster, its guest does not wake, and that is told.
    remove_trees([marker])
    with contextlib.suppress(OSError):
        write_private(marker, mark)
        if runsc.uid is not None and runsc.gid is not None:
            os.chown(marker, runsc.uid, runsc.gid, follow_symlinks=False)


def wait_awake(spec: SandboxSpec) -> bool:
    """Whether a restored sandbox's guest answers in time."""
    deadline = time.monotonic() + _WAKE_TIMEOUT_S
    while time.monotonic() < deadline:
        if guest_answers(spec.control_dir, spec.agent_port):
            return True
        time.sleep(0.004)
    return False


def copy_frozen(spec: SandboxSpec, target: Path, *, has_own_kernel: bool) -> str:
    """Write a copy of a sandbox that is frozen; its kind.

    Raises:
        OSError: It cannot be; nothing of the copy is left.
    """
    if has_own_kernel:
        return copy_sleeping(spec.sandbox_dir, target)
    copy_files(spec.sandbox_dir, spec.prepared, target)
    return FILES


def copy_sleeping(sandbox_dir: Path, target: Path) -> str:
    """The same for one that sleeps on disk, with or without a keeper."""
    saved = find_saved(sandbox_dir)
    if saved is None:
        raise OSError("its kernel could not be saved; the sandbox's log says why")
    copy_memory(saved, target)
    return MEMORY
