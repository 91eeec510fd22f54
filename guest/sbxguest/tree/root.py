"""The root of a tree, and ways below it on which no link is followed."""

from __future__ import annotations

import ctypes
import os
import stat
import struct
import time

from sbxguest.tree.entry import RACY_NS, Kind, Stamp, State
from sbxguest.tree.report import TEMP_PREFIX, TreeError, code_of, shown

FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
# What our own work leaves in a folder for a moment, or, where there is no other place, for longer.
OWN_PREFIXES = (TEMP_PREFIX.encode(), b".sbx-stage-")


_libc = ctypes.CDLL(None)
# Of <linux/stat.h>: where the time of birth is in the answer, and how to ask for it.
_STATX_BYTES, _BIRTH_AT = 256, 80
_NO_FOLLOW, _WANT_BIRTH, _HERE = 0x100, 0x800, -100
# Disks tell of times that no record holds: such a file counts as changed whenever it is looked at.
_FIRST_NS, _LAST_NS = -(2**63), 2**63 - 1


class Root:
    """An open folder. Links in its own path are followed once, when it is opened. Close it.

    Raises:
        TreeError: There is no folder at the path.
    """

    def __init__(self, path: str) -> None:
        self.path = os.path.realpath(path)
        try:
            self.fd = os.open(self.path, FOLDER_FLAGS)
        except OSError as exc:
            raise TreeError(code_of(exc), f"{shown(path)}: {os.strerror(exc.errno or 0)}") from exc
        found = os.fstat(self.fd)
        self.device, self.inode = found.st_dev, found.st_ino
        # A folder made anew often gets the inode of the one that was removed just before.
        self._born_ns = born_ns(self.path)

    @property
    def identity(self) -> str:
        """What tells it from another folder at the same path."""
        return f"{self.device:x}:{self.inode:x}:{self._born_ns:x}"

    @property
    def is_in_place(self) -> bool:
        """Whether its path still leads to it."""
        try:
            found = os.stat(self.path, follow_symlinks=False)
        except OSError:
            return False
        is_same = (found.st_dev, found.st_ino) == (self.device, self.inode)
        return is_same and born_ns(self.path) == self._born_ns

    def check(self) -> None:
        """Raise TreeError (`root_changed`) if its path leads elsewhere by now."""
        if not self.is_in_place:
            raise TreeError("root_changed", f"{shown(self.path)}: another folder, or none, is there now")

    def close(self) -> None:
        """Close it. Safe to repeat."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def open_folder(self, path: bytes) -> int:
        """A descriptor of the folder at `path` (empty: the root itself), for the caller to close.

        Raises:
            OSError: There is none; `ENOTDIR` or `ELOOP` for a link on the way.
        """
        fd = os.open(".", FOLDER_FLAGS, dir_fd=self.fd)
        for name in path.split(b"/") if path else ():
            try:
                inner = os.open(name, FOLDER_FLAGS, dir_fd=fd)
            finally:
                os.close(fd)
            fd = inner
        return fd


def born_ns(path: str) -> int:
    """When what stands at a path was made, in nanoseconds since 1970; 0 where the system does not tell."""
    statx = getattr(_libc, "statx", None)
    answer = ctypes.create_string_buffer(_STATX_BYTES)
    if statx is None or statx(_HERE, os.fsencode(path), _NO_FOLLOW, _WANT_BIRTH, answer) != 0:
        return 0
    (mask,) = struct.unpack_from("=I", answer)
    seconds, nanoseconds = struct.unpack_from("=qI", answer, _BIRTH_AT)
    return int(seconds) * 1_000_000_000 + int(nanoseconds) if mask & _WANT_BIRTH else 0


def split(path: bytes) -> tuple[bytes, bytes]:
    """The path of the folder above (empty: the root) and the name in it."""
    folder, _, name = path.rpartition(b"/")
    return folder, name


def join(folder: bytes, name: bytes) -> bytes:
    """The path of a name in a folder."""
    return folder + b"/" + name if folder else name


def stamp_of(found: os.stat_result, at_ns: int | None = None) -> Stamp:
    """What the disk says, and whether that was so recently that the same may be said of something else soon.

    Args:
        found: By the disk.
        at_ns: When reading the content began, if it was read.
    """
    size_bytes = found.st_size if stat.S_ISREG(found.st_mode) else 0
    return Stamp(size_bytes, _told(found.st_mtime_ns), _told(found.st_ctime_ns), found.st_ino, is_racy(found, at_ns))


def is_racy(found: os.stat_result, at_ns: int | None = None) -> bool:
    """Whether something changed so recently that its stamp proves nothing; see `stamp_of`."""
    return (time.time_ns() if at_ns is None else at_ns) - found.st_ctime_ns < RACY_NS


def _told(at_ns: int) -> int:
    return min(max(at_ns, _FIRST_NS), _LAST_NS)


def file_state(
    found: os.stat_result, digest: bytes = b"", at_ns: int | None = None, *, is_exact: bool = False
) -> State:
    """A file's state; see `stamp_of`. `is_exact`: whatever is written after the look leaves a trace in the stamp."""
    try:
        return State.of_file(found, digest, is_racy=not is_exact and is_racy(found, at_ns))
    except struct.error:
        return State(Kind.FILE, digest, bool(found.st_mode & stat.S_IXUSR), stamp_of(found, at_ns))


def state_of(found: os.stat_result, name: bytes, folder_fd: int) -> State | None:
    """What stands at a name, a file without its content; None for what is not synced.

    Raises:
        OSError: A link cannot be read.
    """
    if stat.S_ISREG(found.st_mode):
        return file_state(found)
    if stat.S_ISDIR(found.st_mode):
        return State(Kind.DIR, stamp=stamp_of(found))
    if stat.S_ISLNK(found.st_mode):
        return State(Kind.LINK, os.readlink(name, dir_fd=folder_fd), stamp=stamp_of(found))
    return None


def look(name: str | bytes, folder_fd: int) -> os.stat_result:
    """What the disk says of a name; a link itself."""
    return os.stat(name, dir_fd=folder_fd, follow_symlinks=False)
