"""Folders of others shown as one's own: in a view of the file system that is this process's alone, by root.

    python -m sbxtui.localcloud.runtimes.idmap FOLDER OWNER UID COMMAND…   runs a command as UID in such a view

What one user of the host left behind as a layer belongs, in the sandbox that stands on it, to the user of that sandbox.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

SHOW_MODULE = "sbxtui.localcloud.runtimes.idmap"
_libc = ctypes.CDLL(None, use_errno=True)
# The same numbers on all architectures.
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442
_AT_FDCWD, _AT_EMPTY_PATH = -100, 0x1000
_CLONE_NEWNS, _CLONE_NEWUSER = 0x0002_0000, 0x1000_0000
_MS_REC, _MS_PRIVATE = 0x4000, 0x4_0000
_OPEN_TREE_CLONE, _MOVE_MOUNT_F_EMPTY_PATH = 1, 4
_ATTR_RDONLY, _ATTR_NOSUID, _ATTR_NODEV, _ATTR_IDMAP = 0x1, 0x2, 0x4, 0x0010_0000


def show_as(uid: int, owners: Mapping[Path, int]) -> None:
    """In a view of this process's own, make folders read-only, and what their owner has in them `uid`'s.

    Args:
        uid: And group.
        owners: Folders, and of each the uid that is to be shown as `uid`.

    Raises:
        OSError: The kernel, or a file system, cannot.
    """
    _check(_libc.unshare(_CLONE_NEWNS))
    _check(_libc.mount(None, b"/", None, ctypes.c_ulong(_MS_REC | _MS_PRIVATE), None))
    users: dict[int, int] = {}
    try:
        for folder, owner in owners.items():
            if owner not in users:
                users[owner] = _users(owner, uid)
            _show(os.fsencode(folder), users[owner])
    finally:
        for descriptor in users.values():
            os.close(descriptor)


def _show(folder: bytes, users: int) -> None:
    tree = _check(_libc.syscall(_OPEN_TREE, _AT_FDCWD, folder, _OPEN_TREE_CLONE | os.O_CLOEXEC))
    try:
        flags = _ATTR_RDONLY | _ATTR_NOSUID | _ATTR_NODEV | _ATTR_IDMAP
        attributes = ctypes.create_string_buffer(struct.pack("QQQQ", flags, 0, 0, users), 32)
        _check(_libc.syscall(_MOUNT_SETATTR, tree, b"", _AT_EMPTY_PATH, attributes, 32))
        _check(_libc.syscall(_MOVE_MOUNT, tree, b"", _AT_FDCWD, folder, _MOVE_MOUNT_F_EMPTY_PATH))
    finally:
        os.close(tree)


def _users(owner: int, uid: int) -> int:
    """A user namespace in which `owner` of the disk is `uid` of the host; its descriptor keeps it."""
    ready, tell_ready = os.pipe()
    wait, let_go = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(let_go)
            code = 0 if _libc.unshare(_CLONE_NEWUSER) == 0 else 1
            os.write(tell_ready, b"x" if code == 0 else b"-")
            os.read(wait, 1)
        finally:
            os._exit(code)
    try:
        os.close(tell_ready)
        os.close(wait)
        if os.read(ready, 1) != b"x":
            raise OSError("no user namespace can be made")
        for name in ("uid_map", "gid_map"):
            Path(f"/proc/{child}/{name}").write_text(f"{owner} {uid} 1")
        return os.open(f"/proc/{child}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(let_go)
        os.close(ready)
        os.waitpid(child, 0)


def _check(answer: int) -> int:
    if answer < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return answer


def main(folder: str, owner: str, uid: str, *command: str) -> NoReturn:
    """Be a program that sees a folder so; a line on stderr, and 1, where it cannot be."""
    number = int(uid)
    try:
        show_as(number, {Path(folder): int(owner)})
        os.setgroups([])
        os.setresgid(number, number, number)
        os.setresuid(number, number, number)
        os.execve(command[0], command, {})
    except OSError as exc:
        sys.exit(f"folders of others cannot be shown as one's own here: {exc.strerror}")


if __name__ == "__main__":
    main(*sys.argv[1:])
