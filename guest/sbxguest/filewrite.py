"""Atomic uploads: content is written beside a file and takes its name in one step, or leaves nothing."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import threading
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sbxguest.fileops import FileError, Owner, make_parents, refuse_special, sha256_of, translated
from sbxguest.tree.report import TEMP_PREFIX, shown

_IOV_MAX = 1024
_JOURNAL_BYTES = 64 * 1024
# A precondition and its rename must not interleave with another upload to the same name.
_COMMIT_LOCKS = tuple(threading.Lock() for _ in range(64))


class Journal:
    """Names of temporary files being written, on disk, so that the next start removes what a killed one left.

    One per sandbox; only names with our prefix are ever removed.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._live: set[str] = set()
        self._size_bytes = 0
        self._fd = -1

    def clean(self) -> int:
        """Remove left-overs named by the last run, start afresh, and return how many were removed."""
        removed = 0
        with contextlib.suppress(OSError):
            self._check_folder()
            for name in self._path.read_bytes().split(b"\0"):
                if os.path.basename(name).startswith(TEMP_PREFIX.encode()):
                    with contextlib.suppress(OSError):
                        os.unlink(name)
                        removed += 1
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)
        return removed

    def _check_folder(self) -> None:
        """A job may have made the folder first, to have its own list of files believed."""
        found = self._path.parent.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    def add(self, path: str) -> None:
        """Note `path` before it is created. A journal that cannot be written is done without."""
        with self._lock, contextlib.suppress(OSError):
            self._live.add(path)
            if self._fd < 0:
                self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._check_folder()
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
                self._fd = os.open(self._path, flags, 0o600)
            self._size_bytes += os.write(self._fd, os.fsencode(path) + b"\0")

    def drop(self, path: str) -> None:
        """Forget a temporary file that is gone; now and then, when none is left, the journal is emptied.

        Names of the past may stay in it: they are random, and to remove what is gone does nothing.
        """
        with self._lock, contextlib.suppress(OSError):
            self._live.discard(path)
            if not self._live and self._size_bytes > _JOURNAL_BYTES:
                os.ftruncate(self._fd, 0)
                self._size_bytes = 0


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How a file is put.

    `mode` None keeps an existing file's, else 0644. `if_sha256` is what must be there now, `none` for nothing, empty
    for whatever. `is_durable` waits for the disk before the new content takes the name.
    """

    mode: int | None = None
    mtime_ns: int | None = None
    if_sha256: str = ""
    has_parents: bool = False
    is_durable: bool = True
    size_bytes: int | None = None


class AtomicWriter:
    """Writes beside a file and takes its name in one step: readers see the old content or the new, never a mix.

    Used from several threads one after another; `abort` may come at any time and wins over what follows it.
    """

    def __init__(self, path: str, options: WriteOptions, owner: Owner, journal: Journal) -> None:
        self._asked = path
        self._options = options
        self._journal = journal
        self._lock = threading.Lock()
        self.size_bytes = 0
        with translated(path):
            if options.has_parents:
                make_parents(path, owner)
            # Writing through a link changes the file it names, as every other program does.
            self._path = os.path.realpath(path)
            before = self._existing()
            if options.if_sha256:
                self._check_precondition()
            self._check_space()
            folder = os.path.dirname(self._path)
            # Random, and short whatever the file's own name is: that one may already fill NAME_MAX.
            self._temp = os.path.join(folder, TEMP_PREFIX + secrets.token_hex(8))
            journal.add(self._temp)
            self._fd = self._create(before, owner)

    def _existing(self) -> os.stat_result | None:
        if self._asked.endswith("/"):
            raise FileError("is_a_directory", 409, f"{shown(self._asked)}: names a directory")
        try:
            found = os.lstat(self._path)
        except FileNotFoundError:
            return None
        if stat.S_ISLNK(found.st_mode):
            raise FileError("bad_path", 400, f"{shown(self._asked)}: its links never end")
        refuse_special(self._asked, found)
        return found

    def _check_space(self) -> None:
        wanted = self._options.size_bytes
        if wanted is None:
            return
        room = os.statvfs(os.path.dirname(self._path))
        if room.f_blocks and wanted > room.f_bavail * room.f_frsize:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _create(self, before: os.stat_result | None, owner: Owner) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            fd = os.open(self._temp, flags, 0o600)
        except OSError:
            self._journal.drop(self._temp)
            raise
        (owner if before is None else Owner(before.st_uid, before.st_gid)).apply(fd)
        kept = 0o644 if before is None else stat.S_IMODE(before.st_mode)
        os.fchmod(fd, kept if self._options.mode is None else self._options.mode)
        return fd

    def _check_precondition(self) -> None:
        found = sha256_of(self._path)
        if found != self._options.if_sha256:
            what = "is not there" if found == "none" else f"has sha256 {found}"
            raise FileError("conflict", 409, f"{shown(self._asked)}: {what}; expected {self._options.if_sha256}")

    def write(self, chunks: Sequence[bytes]) -> None:
        """Append chunks, in order.

        Raises:
            FileError: The disk refused; the caller still has to `abort`.
        """
        with self._lock, translated(self._asked):
            if self._fd < 0:
                raise FileError("aborted", 409, f"{shown(self._asked)}: the upload was aborted")
            views = [memoryview(chunk) for chunk in chunks if chunk]
            while views:
                count = os.writev(self._fd, views[:_IOV_MAX])
                self.size_bytes += count
                while views and count >= len(views[0]):
                    count -= len(views.pop(0))
                if count:
                    views[0] = views[0][count:]

    def commit(self) -> None:
        """Make the new content durable and give it the name.

        Raises:
            FileError: Old content stands; the caller still has to `abort`.
        """
        with self._lock, translated(self._asked):
            if self._fd < 0:
                raise FileError("aborted", 409, f"{shown(self._asked)}: the upload was aborted")
            if (mtime_ns := self._options.mtime_ns) is not None:
                os.utime(self._fd, ns=(mtime_ns, mtime_ns))
            if self._options.is_durable:
                os.fsync(self._fd)
            with _COMMIT_LOCKS[zlib.crc32(os.fsencode(self._path)) % len(_COMMIT_LOCKS)]:
                if self._options.if_sha256:
                    self._check_precondition()
                os.rename(self._temp, self._path)
            self._journal.drop(self._temp)
            fd, self._fd = self._fd, -1
            os.close(fd)

    def abort(self) -> None:
        """Drop what was written, unless it was committed. Safe to repeat."""
        with self._lock:
            if self._fd < 0:
                return
            fd, self._fd = self._fd, -1
            os.close(fd)
            with contextlib.suppress(OSError):
                os.unlink(self._temp)
            self._journal.drop(self._temp)
