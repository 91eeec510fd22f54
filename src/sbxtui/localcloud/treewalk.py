"""Walking folders a guest writes into while it may change them: by descriptors, so that no path is too long, no link
that is swapped in is followed, and a folder closed to its owner hides nothing.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

# An empty file takes no block, but a file system has an end of files too.
INODE_BYTES = 1024
# Deeper folders are closed and found again by `..`, so that depth costs no descriptors.
_MAX_OPEN = 128
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OWNER_LOOKS = stat.S_IRUSR | stat.S_IXUSR
Entry = os.DirEntry[str]


@dataclass(frozen=True, slots=True)
class Usage:
    """Bytes on disk; `is_whole` False when something could not be looked at, and there may be more."""

    size_bytes: int
    is_whole: bool


def usage_of(folder: Path) -> Usage:
    """What the files below a folder take, each at least `INODE_BYTES`; one with several names counts once."""
    total = 0
    seen: set[int] = set()

    def count(entry: Entry) -> None:
        nonlocal total
        info = entry.stat(follow_symlinks=False)
        if info.st_nlink > 1 and not stat.S_ISDIR(info.st_mode):
            if info.st_ino in seen:
                return
            seen.add(info.st_ino)
        total += max(info.st_blocks * 512, INODE_BYTES)

    is_whole = _Walk(count, keeps_modes=True).run(folder)
    return Usage(total, is_whole)


def open_up(folder: Path) -> None:
    """Let the owner read, change and enter every folder from `folder` down; links and files are left as they are."""
    _Walk(lambda _: None, keeps_modes=False).run(folder)


@dataclass(slots=True)
class _Level:
    """A folder on the way down; `fd` is -1 while it is closed, `mode` what to give back on leaving."""

    fd: int
    inode: tuple[int, int]
    below: list[str]
    mode: int | None


class _Walk:
    """One walk. `visit` sees every entry but the folder itself; its OSErrors mean that the entry is gone or hidden."""

    def __init__(self, visit: Callable[[Entry], None], *, keeps_modes: bool) -> None:
        self._visit = visit
        self._keeps_modes = keeps_modes
        self._sees_all = keeps_modes and os.geteuid() == 0
        self._is_whole = True
        self._levels: list[_Level] = []

    def run(self, folder: Path) -> bool:
        """Walk; True if everything could be looked at. A folder that is not there is nothing to look at."""
        try:
            self._enter(str(folder), None)
            while self._levels:
                level = self._levels[-1]
                if level.below:
                    self._enter(level.below.pop(), level.fd)
                else:
                    self._leave()
        except OSError:
            # The way back is lost: folders were moved under our feet.
            self._is_whole = False
        finally:
            for level in self._levels:
                self._close(level)
        return self._is_whole

    def _enter(self, name: str, parent: int | None) -> None:
        try:
            fd, mode = self._open(name, parent)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError:
            # ELOOP too: a link is no folder, and what it became one from is gone.
            self._is_whole = self._is_whole and _is_link(name, parent)
            return
        info = os.fstat(fd)
        level = _Level(fd, (info.st_dev, info.st_ino), [], mode)
        self._levels.append(level)
        self._look(level)
        if len(self._levels) > _MAX_OPEN:
            old = self._levels[-1 - _MAX_OPEN]
            if old.fd >= 0:
                os.close(old.fd)
                old.fd = -1

    def _open(self, name: str, parent: int | None) -> tuple[int, int | None]:
        """A descriptor of a folder, made accessible if its owner has closed it; and the mode to give back then."""
        with contextlib.suppress(PermissionError):
            fd = os.open(name, _FOLDER, dir_fd=parent)
            if self._wanted(os.fstat(fd)) is None:
                return fd, None
            os.close(fd)
        handle = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
        try:
            # The handle is the very folder that was looked at, whatever has its name by now.
            path = f"/proc/self/fd/{handle}"
            info = os.fstat(handle)
            if (wanted := self._wanted(info)) is not None:
                Path(path).chmod(wanted)
            fd = os.open(path, _FOLDER & ~os.O_NOFOLLOW)
        finally:
            os.close(handle)
        return fd, stat.S_IMODE(info.st_mode) if self._keeps_modes and wanted is not None else None

    def _wanted(self, info: os.stat_result) -> int | None:
        """The mode this walk needs, or None if the folder's own is enough."""
        if self._sees_all:
            return None
        mode = stat.S_IMODE(info.st_mode)
        wanted = mode | (_OWNER_LOOKS if self._keeps_modes else stat.S_IRWXU)
        return None if wanted == mode else wanted

    def _look(self, level: _Level) -> None:
        try:
            with os.scandir(level.fd) as entries:
                for entry in entries:
                    self._look_at(entry, level)
        except OSError:
            self._is_whole = False

    def _look_at(self, entry: Entry, level: _Level) -> None:
        try:
            if entry.is_dir(follow_symlinks=False):
                level.below.append(entry.name)
            self._visit(entry)
        except FileNotFoundError:
            return
        except OSError:
            self._is_whole = False

    def _leave(self) -> None:
        level = self._levels.pop()
        try:
            if self._levels and self._levels[-1].fd < 0:
                self._reopen(self._levels[-1], level.fd)
        finally:
            self._close(level)

    def _reopen(self, level: _Level, below: int) -> None:
        fd = os.open("..", _FOLDER, dir_fd=below)
        info = os.fstat(fd)
        if (info.st_dev, info.st_ino) != level.inode:
            os.close(fd)
            raise FileNotFoundError("a folder was moved while it was walked")
        level.fd = fd

    def _close(self, level: _Level) -> None:
        if level.fd < 0:
            return
        with contextlib.suppress(OSError):
            if level.mode is not None:
                os.fchmod(level.fd, level.mode)
        os.close(level.fd)
        level.fd = -1


def _is_link(name: str, parent: int | None) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return True
    except OSError:
        return False
