"""Cleaning up after keepers that were killed: their sandboxes died with them, what those had on the host did not."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from datetime import UTC, datetime
from pathlib import Path

from sbxtui.core.text import iso
from sbxtui.localcloud import cgroups
from sbxtui.localcloud.imagetree import prune_image_trees
from sbxtui.localcloud.keeper_place import lock_keeper, remove_remains
from sbxtui.localcloud.keeper_processes import pids_called, send_signal
from sbxtui.localcloud.keeper_save import find_saved
from sbxtui.localcloud.spec import SandboxSpec, write_private

_KILLED_CODE = 137
_ABANDONED_S = 3600.0


def sweep(trees_dir: Path, socket_dir: Path) -> list[str]:
    """Remove control groups, sockets and files of sandboxes whose keeper is gone; returns their ids. Blocking.

    Call it before anything starts a sandbox there. A sandbox whose keeper wrote no end gets an `exit.json` with the
    reason `keeper-died`. Living keepers are left alone, also those of other versions of sbx.
    """
    swept = [spec.sandbox_id for spec in _specs(trees_dir) if sweep_one(spec)]
    folder = cgroups.folder_of(socket_dir)
    for name in cgroups.names_in(folder):
        # A sandbox that starts has its folder before its group.
        if not (trees_dir / name).exists():
            _end_group(folder, name)
            swept.append(name)
    if os.geteuid() == 0:
        cgroups.remove_abandoned(_ABANDONED_S)
    prune_image_trees(trees_dir / ".images")
    return swept


def _specs(trees_dir: Path) -> list[SandboxSpec]:
    found: list[SandboxSpec] = []
    for file in sorted(trees_dir.glob("*/spec.json")):
        with contextlib.suppress(OSError, ValueError):
            found.append(SandboxSpec.from_json(file.read_text()))
    return found


def sweep_one(spec: SandboxSpec) -> bool:
    """The same for one sandbox; False if its keeper lives."""
    lock = lock_keeper(spec.lock_file)
    if lock is None:
        return False
    try:
        _end_group(cgroups.folder_of(spec.keeper_socket.parent), spec.sandbox_id)
        saved = find_saved(spec.sandbox_dir)
        if saved is not None and not spec.exit_file.exists():
            # It sleeps on disk and is nobody's loss; its copy of the guest must not be taken for one nobody needs.
            with contextlib.suppress(OSError):
                os.utime(saved.prepared["image_tree"])
            return False
        _end_kernel(spec)
        if not spec.exit_file.exists():
            record = {"exit_code": _KILLED_CODE, "signal": 9, "reason": "keeper-died", "at": iso(datetime.now(UTC))}
            write_private(spec.exit_file, json.dumps(record))
        remove_remains(spec)
    finally:
        spec.lock_file.unlink(missing_ok=True)
        os.close(lock)
    return True


def _end_kernel(spec: SandboxSpec) -> None:
    """End gVisor's processes, of which nobody is left who would, and which no control group may hold."""
    if not spec.kernel_dir.exists():
        return
    mark = f"--root={spec.kernel_dir}".encode()
    send_signal(pids_called(lambda words: mark in words), signal.SIGKILL)


def _end_group(folder: str, name: str) -> None:
    group = cgroups.Cgroup.find(folder, name)
    if group.dirs:
        group.kill()
        group.remove()
