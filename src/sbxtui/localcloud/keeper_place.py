"""A sandbox's places on the host: its folders, its uid, its lock, and how all of that is taken away again."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import stat
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from sbxtui.core.errors import RuntimeUnavailable
from sbxtui.localcloud.ownroot import LAYERS, SCRATCH, UPPER, has_own_root, layers_of
from sbxtui.localcloud.shown import ShownUse
from sbxtui.localcloud.spec import SandboxSpec
from sbxtui.localcloud.treewalk import open_up

# No account and no range of subordinate ids lies here.
FIRST_UID = 0x7000_0000
_UID_COUNT = 0x0FF0_0000
_UID_TRIES = 1000
_LOCK_TIMEOUT_S = 1.0
GUEST_FOLDERS = ("work", "home", "tmp")
# What a sandbox is started from: by runsc, with the files that are written inside, or to go on; and what it is shown.
RUNTIME_FOLDERS = ("gvisor", "microvm", "saved", "copied", "shown", UPPER, SCRATCH, LAYERS)
# Folders that several sandboxes share, by their names among what a spec has prepared.
HELD = ("image_tree", "system")
_FEW_FILES = 64


@dataclass(slots=True)
class DroppedUid:
    """A uid one sandbox has for itself on this machine while `holder` is open."""

    uid: int
    holder: socket.socket


def take_uid(sandbox_id: str) -> DroppedUid:
    """Reserve a uid no other running sandbox of any home has.

    The reservation is a bound abstract socket: it ends with its process and leaves nothing behind.

    Raises:
        RuntimeUnavailable: None is free.
    """
    start = zlib.crc32(sandbox_id.encode()) % _UID_COUNT
    for offset in range(_UID_TRIES):
        uid = FIRST_UID + (start + offset) % _UID_COUNT
        holder = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            holder.bind(f"\0sbx-uid-{uid}")
            return DroppedUid(uid, holder)
        except OSError:
            holder.close()
    raise RuntimeUnavailable("no user id is free for the sandbox", hint="remove sandboxes you no longer need")


def hold_tree(tree: Path) -> int:
    """Keep an image tree from being pruned for as long as the returned descriptor is open.

    Raises:
        OSError: It does not exist.
    """
    descriptor = os.open(tree, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    return descriptor


def lock_keeper(path: Path) -> int | None:
    """The lock of a sandbox's one keeper, held while the returned descriptor is open; None if another has it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # A holder that ends removes the file: make sure we locked the one others will find.
            if os.fstat(descriptor).st_ino == path.stat().st_ino:
                return descriptor
        except FileNotFoundError:
            pass
        except BlockingIOError:
            os.close(descriptor)
            return None
        os.close(descriptor)


def lock_patiently(spec: SandboxSpec) -> int | None:
    """The keeper's lock; a sweep holds it for a moment, another keeper for good."""
    deadline = time.monotonic() + _LOCK_TIMEOUT_S
    while (lock := lock_keeper(spec.lock_file)) is None and time.monotonic() < deadline:
        time.sleep(0.02)
    return lock


def guest_folders(spec: SandboxSpec) -> tuple[str, ...]:
    """What of its folder on the host the sandbox itself writes to."""
    return (*GUEST_FOLDERS, UPPER) if has_own_root(spec) else GUEST_FOLDERS


def make_folders(spec: SandboxSpec, uid: int | None) -> None:
    """Create what the runtime binds into the sandbox, owned by the uid it runs as.

    Raises:
        RuntimeUnavailable: A folder above is closed to that uid.
    """
    is_own = has_own_root(spec)
    folders = [spec.sandbox_dir / name for name in guest_folders(spec)] + [spec.control_dir]
    folders += [spec.sandbox_dir / SCRATCH] if is_own else []
    spec.sandbox_dir.mkdir(parents=True, exist_ok=True)
    spec.sandbox_dir.chmod(0o700 if uid is None else 0o711)
    remove_trees([spec.control_dir])
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
        if uid is not None:
            _give(folder, uid)
    if uid is not None:
        for folder in [spec.sandbox_dir / LAYERS, *layers_of(spec.sandbox_dir)] if is_own else []:
            # What is in them is shared with others, and shown to each as its own.
            folder.mkdir(exist_ok=True)
            os.chown(folder, uid, uid)
        for folder in {folder.parent: folder for folder in folders}.values():
            _open_way(folder)
    ShownUse.of(spec).make()


def _give(folder: Path, uid: int) -> None:
    """Make `folder` and all below it belong to `uid`; links themselves, never what they point to."""
    if folder.stat().st_uid == uid:
        return
    for _, folders, files, descriptor in os.fwalk(folder):
        for name in (*folders, *files):
            os.chown(name, uid, uid, dir_fd=descriptor, follow_symlinks=False)
    os.chown(folder, uid, uid)


def _open_way(folder: Path) -> None:
    for level, parent in enumerate(folder.parents):
        mode = stat.S_IMODE(parent.stat().st_mode)
        if mode & 0o001:
            continue
        # Our own folders may have been made private; anything above belongs to somebody else.
        if level > 2:
            raise RuntimeUnavailable(
                f"`{parent}` is closed to the user the sandbox runs as",
                hint="use a home all of whose parents have mode 711",
            )
        parent.chmod(mode | 0o011)


def remove_trees(paths: Sequence[Path]) -> None:
    """Remove folders a guest wrote: links are not followed, depth does not matter, folders without rights neither."""
    present = [str(path) for path in paths if not _is_simply_removed(path)]
    if not present:
        return
    if run_program(["/bin/rm", "-rf", "--", *present]) != 0:
        for path in paths:
            open_up(path)
        run_program(["/bin/rm", "-rf", "--", *present])


def _is_simply_removed(path: Path) -> bool:
    """Whether nothing is there any more: a file or a folder of few files goes sooner than a program starts."""
    try:
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    except OSError:
        folder = -1
    try:
        if folder < 0:
            path.unlink()
            return True
        with os.scandir(folder) as entries:
            # Of a folder of millions no more than tells that.
            names = [entry.name for entry in islice(entries, _FEW_FILES + 1)]
        if len(names) > _FEW_FILES:
            return False
        for name in names:
            os.unlink(name, dir_fd=folder)
        path.rmdir()
    except OSError:
        return False
    finally:
        if folder >= 0:
            os.close(folder)
    return True


def remove_remains(spec: SandboxSpec, *, keeps_saved: bool = False) -> None:
    """Everything of an ended sandbox but `exit.json`, `keeper.log`, the lock and, if told so, what is saved."""
    folders = [spec.sandbox_dir / name for name in (*GUEST_FOLDERS, *RUNTIME_FOLDERS)]
    folders = [folder for folder in folders if not keeps_saved or folder.name != "saved"]
    remove_trees([*folders, spec.control_dir, spec.kernel_dir])
    spec.keeper_socket.unlink(missing_ok=True)
    spec.spec_file.unlink(missing_ok=True)


def run_program(command: list[str]) -> int:
    """Run a program of the system to its end, without input or output; its exit code."""
    null = [(os.POSIX_SPAWN_OPEN, descriptor, os.devnull, os.O_RDWR, 0) for descriptor in (0, 1, 2)]
    pid = os.posix_spawn(command[0], command, {"PATH": "/usr/bin:/bin"}, file_actions=null)
    with contextlib.suppress(ChildProcessError):
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return 0
