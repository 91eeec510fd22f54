"""Suspending a sandbox to disk: its kernel writes processes, memory and files down and ends; another goes on with them.

What is saved is good for one restore, by the same runsc and the same copy of the guest; both are named in it.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sbxtui.core.errors import RuntimeUnavailable
from sbxtui.localcloud.keeper_place import remove_trees
from sbxtui.localcloud.keeper_start import guest_answers
from sbxtui.localcloud.runtimes.base import Started
from sbxtui.localcloud.runtimes.runsc import CONTAINER, wait_for
from sbxtui.localcloud.spec import SandboxSpec, write_private

SAVE_TIMEOUT_S = 120.0
_PARK_TIMEOUT_S = 10.0
_WAKE_TIMEOUT_S = 30.0
_SIGUSR1 = "10"


@dataclass(frozen=True, slots=True)
class Saved:
    """A sandbox on disk: the folder of its image, and what it was started with."""

    folder: Path
    prepared: Mapping[str, str]


def find_saved(sandbox_dir: Path) -> Saved | None:
    """The saved sandbox of this folder; None if there is none, or saving was cut short."""
    try:
        told = json.loads((sandbox_dir / "saved" / "done.json").read_text())
        return Saved(sandbox_dir / "saved", {str(key): str(value) for key, value in told["prepared"].items()})
    except (OSError, ValueError, KeyError, AttributeError):
        return None


def save(spec: SandboxSpec, started: Started) -> str:
    """Write a running sandbox down and end it; an empty string, or why it failed and runs on (or has ended)."""
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
        open_up_again(spec, started)
        return f"saving failed: {exc.message}"
    wait_for(started.root_pid, _PARK_TIMEOUT_S)
    told = {"prepared": dict(spec.prepared)}
    write_private(spec.sandbox_dir / "saved" / "done.json", json.dumps(told), is_durable=True)
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


def open_up_again(spec: SandboxSpec, started: Started) -> None:
    """Let the bridge listen. What stands in the file is new each time: the guest renews its boot id by it."""
    assert started.kernel is not None
    runsc = started.kernel.runsc
    marker = spec.control_dir / "open"
    # Root inside may put anything into that folder: what is in the way goes, and no link of its is followed. Where it
    # is faster, its guest does not wake, and that is told.
    remove_trees([marker])
    with contextlib.suppress(OSError):
        write_private(marker, secrets.token_hex(16))
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
