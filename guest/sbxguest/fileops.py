"""The blocking half of files: paths, entries, errors. Every function here may wait for a disk.

Paths are `str` with surrogateescape, relative ones start at the workdir; they stay text, because `pathlib` drops a
trailing slash, which says "must be a directory". Symbolic links are followed as every program in the sandbox would
follow them: inside a sandbox there is no boundary that a path could cross. Only where a sandbox shares the host's files
is every path kept below its own folder.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
import threading
from collections.abc import Iterator
from dataclasses import dataclass

from sbxguest import boundary
from sbxguest.tree.report import shown

_HASH_CHUNK_BYTES = 1024 * 1024

_BY_ERRNO = {
    errno.ENOENT: ("file_not_found", 404),
    errno.ENOTDIR: ("not_a_directory", 409),
    errno.EISDIR: ("is_a_directory", 409),
    errno.EEXIST: ("file_exists", 409),
    errno.ENOTEMPTY: ("not_empty", 409),
    errno.EBUSY: ("busy", 409),
    errno.ETXTBSY: ("busy", 409),
    errno.EACCES: ("access_denied", 403),
    errno.EPERM: ("access_denied", 403),
    errno.EROFS: ("access_denied", 403),
    errno.ENOSPC: ("disk_full", 507),
    errno.EDQUOT: ("disk_full", 507),
    # Without a disk of its own a sandbox has a limit per file.
    errno.EFBIG: ("disk_full", 507),
    errno.ELOOP: ("bad_path", 400),
    errno.ENAMETOOLONG: ("bad_path", 400),
    errno.EINVAL: ("bad_path", 400),
}


class FileError(Exception):
    """A refused file operation.

    Args:
        code: One word for programs: `file_not_found`, `disk_full`, `conflict` …
        status: The HTTP status it travels under.
        message: What failed, on which path, and why.
    """

    def __init__(self, code: str, status: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.status = status
        self.message = message


def from_os_error(exc: OSError, path: str) -> FileError:
    """The FileError of a failed system call on `path`."""
    code, status = _BY_ERRNO.get(exc.errno or 0, ("io_error", 500))
    return FileError(code, status, f"{shown(path)}: {os.strerror(exc.errno or errno.EIO)}")


@contextlib.contextmanager
def translated(path: str) -> Iterator[None]:
    """Turns OSErrors of the block into FileErrors about `path`."""
    try:
        yield
    except OSError as exc:
        raise from_os_error(exc, path) from exc


@dataclass(frozen=True, slots=True)
class Owner:
    """Who owns what is created: `None` leaves the guest's own ids."""

    uid: int | None = None
    gid: int | None = None

    def apply(self, target: int | str) -> None:
        """Give a descriptor or a path (links not followed) to the owner; a guest that may not do that keeps it."""
        if self.uid is None:
            return
        gid = self.uid if self.gid is None else self.gid
        # User namespaces and bind mounts may refuse any chown; the file is then usable by the guest only, as before.
        with contextlib.suppress(PermissionError, OSError):
            if isinstance(target, int):
                os.fchown(target, self.uid, gid)
            else:
                os.chown(target, self.uid, gid, follow_symlinks=False)


def resolve(raw: str, workdir: str, root: str = "", *, follows: bool = True) -> str:
    """An absolute path for what a caller wrote; nothing is normalised away that the kernel should decide.

    Args:
        raw: As written.
        workdir: Where relative paths start.
        root: Must hold it, unless empty; see `boundary`.
        follows: Whether the operation follows a link that the path itself names.

    Raises:
        FileError: It is empty, holds a NUL, is not text that stands for bytes, or leads out of `root`.
    """
    if not raw:
        raise FileError("bad_path", 400, "the path is empty")
    if "\0" in raw:
        raise FileError("bad_path", 400, "the path holds a NUL byte")
    try:
        os.fsencode(raw)
    except UnicodeEncodeError as exc:
        raise FileError("bad_path", 400, "the path holds half a character") from exc
    # Joined as text: `Path` would drop a trailing slash, which says "must be a folder".
    path = os.path.join(workdir, raw)
    refuse_outside(path, root, follows=follows)
    return path


def refuse_outside(path: str, root: str, *, follows: bool = True) -> None:
    """Raise FileError if `path` leads out of `root`."""
    if not boundary.is_below(path, root, follows=follows):
        message = f"{shown(path)}: this sandbox shares the host's files and is kept to those below {root}"
        raise FileError("access_denied", 403, message)


def kind_of(mode: int) -> str:
    """`file`, `dir`, `link`, `fifo`, `socket`, `char` or `block`."""
    kinds = {
        stat.S_IFREG: "file",
        stat.S_IFDIR: "dir",
        stat.S_IFLNK: "link",
        stat.S_IFIFO: "fifo",
        stat.S_IFSOCK: "socket",
        stat.S_IFCHR: "char",
        stat.S_IFBLK: "block",
    }
    return kinds.get(stat.S_IFMT(mode), "other")


def entry(path: str, name: str, *, follow: bool = False) -> dict[str, object]:
    """What the wire says of one file system entry; `target` only for links.

    Raises:
        OSError: It cannot be looked at.
    """
    found = os.stat(path, follow_symlinks=follow)
    seen: dict[str, object] = {
        "path": name,
        "kind": kind_of(found.st_mode),
        "size_bytes": found.st_size,
        "mode": stat.S_IMODE(found.st_mode),
        "mtime_ns": found.st_mtime_ns,
        "uid": found.st_uid,
        "gid": found.st_gid,
    }
    if stat.S_ISLNK(found.st_mode):
        seen["target"] = os.readlink(path)
    return seen


def open_regular(path: str) -> tuple[int, os.stat_result]:
    """A regular file open for reading, and what it is; the caller closes the descriptor.

    Never waits on a FIFO or a device: they are refused before they are opened, and opened without blocking.

    Raises:
        FileError: Missing, a folder, a special file, or not readable.
    """
    with translated(path):
        refuse_special(path, os.stat(path))
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        found = os.fstat(fd)
        refuse_special(path, found)
    except BaseException:
        os.close(fd)
        raise
    return fd, found


def refuse_special(path: str, found: os.stat_result) -> None:
    """Raise FileError unless `found` is a regular file."""
    if stat.S_ISDIR(found.st_mode):
        raise FileError("is_a_directory", 409, f"{shown(path)}: is a directory")
    if not stat.S_ISREG(found.st_mode):
        raise FileError("special_file", 409, f"{shown(path)}: is a {kind_of(found.st_mode)}, not a regular file")


def sha256_of(path: str) -> str:
    """Hex SHA-256 of a regular file, or `none` when nothing is there.

    Raises:
        FileError: It is there but no readable regular file.
    """
    try:
        fd, _ = open_regular(path)
    except FileError as exc:
        if exc.code == "file_not_found":
            return "none"
        raise
    digest = hashlib.sha256()
    try:
        while chunk := os.read(fd, _HASH_CHUNK_BYTES):
            digest.update(chunk)
    finally:
        os.close(fd)
    return digest.hexdigest()


def make_parents(path: str, owner: Owner) -> None:
    """Create the missing folders above `path`, each owned by `owner`.

    Raises:
        OSError: One of them cannot be made.
    """
    missing: list[str] = []
    folder = os.path.dirname(path.rstrip("/")) or "/"
    while not os.path.isdir(folder):
        missing.append(folder)
        parent = os.path.dirname(folder.rstrip("/"))
        if parent in ("", folder):
            break
        folder = parent
    for folder in reversed(missing):
        try:
            os.mkdir(folder)
        except FileExistsError:
            # Somebody was faster; if it is no folder, the next step says so.
            continue
        owner.apply(folder)


class FileReader:
    """A regular file open for reading, used from several threads one after another.

    Holds a file object and not a bare descriptor: one that nobody came to close is closed when it is forgotten.

    Raises:
        FileError: Missing, a folder, a special file, or not readable.
    """

    def __init__(self, path: str) -> None:
        fd, self.found = open_regular(path)
        self._path = path
        self._lock = threading.Lock()
        self._file = os.fdopen(fd, "rb", buffering=0)

    def read(self, offset: int, size_bytes: int) -> bytes:
        """Up to `size_bytes` from `offset`; empty at the end, and after `close`.

        Raises:
            FileError: The disk refused.
        """
        with self._lock, translated(self._path):
            return b"" if self._file.closed else os.pread(self._file.fileno(), size_bytes, offset)

    def close(self) -> None:
        """Close it; waits for a read under way. Safe to repeat."""
        with self._lock:
            self._file.close()
