"""SQLite's and the file system's errors, told as ours."""

from __future__ import annotations

import errno
import os
import sqlite3
from pathlib import Path

from sbxtui.core.errors import StoreCorrupt, StoreError, StoreUnwritable

_LOCAL_DISK = "put SBX_HOME on a disk of this machine"
_PRIMARY_CODE = 0xFF

# Primary result code -> what to say and what to do about it.
_WORDS: dict[int, tuple[str, str]] = {
    sqlite3.SQLITE_BUSY: ("another process kept it locked too long", "try again; `sbx doctor` names who holds it"),
    sqlite3.SQLITE_LOCKED: ("another process kept it locked too long", "try again"),
    sqlite3.SQLITE_FULL: ("the disk is full", "free some space and try again; nothing was lost"),
    sqlite3.SQLITE_READONLY: ("it is read-only", "make it writable for this user, or set SBX_HOME"),
    sqlite3.SQLITE_PERM: ("it may not be written", "make it writable for this user, or set SBX_HOME"),
    sqlite3.SQLITE_CANTOPEN: ("it cannot be opened", "check its folder's owner and permissions, or set SBX_HOME"),
    sqlite3.SQLITE_PROTOCOL: ("its file system has no working locks", _LOCAL_DISK),
    sqlite3.SQLITE_NOLFS: ("its file system cannot hold large files", _LOCAL_DISK),
}

# Reading goes on where only writing fails: no room, no permission, a quota, a file that may not grow.
_UNWRITABLE_CODES = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM)
_WRITING_NAMES = ("_WRITE", "_FSYNC", "_DIR_FSYNC", "_TRUNCATE", "_SHMOPEN", "_SHMSIZE", "_DELETE")
_CORRUPT_CODES = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def is_corruption(error: sqlite3.Error) -> bool:
    """Whether SQLite says that the file itself is damaged."""
    return _code(error) in _CORRUPT_CODES


def store_error(error: sqlite3.Error, file: Path) -> StoreError:
    """Our error for one of SQLite's; the caller raises it `from` that one."""
    code = _code(error)
    if code in _CORRUPT_CODES:
        return StoreCorrupt(
            f"the store `{file}` is damaged", hint="run sbx again: it keeps the file aside and starts a new one"
        )
    if code == sqlite3.SQLITE_IOERR:
        return _io_error(error, file)
    reason, hint = _WORDS.get(code, (str(error), "run `sbx doctor`"))
    if code in _UNWRITABLE_CODES:
        return StoreUnwritable(f"cannot write the store `{file}`: {reason}", hint=hint)
    return StoreError(f"cannot use the store `{file}`: {reason}", hint=hint)


def folder_error(error: OSError, folder: Path) -> StoreError:
    """Our error when the home's folder or lock file cannot be made or locked."""
    if error.errno in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS):
        return StoreError(
            f"cannot lock the store in `{folder}`: its file system has no working locks", hint=_LOCAL_DISK
        )
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return StoreUnwritable(
            f"cannot write the store in `{folder}`: the disk is full", hint="free some space and try again"
        )
    reason = os.strerror(error.errno) if error.errno else str(error)
    return StoreError(
        f"cannot keep the store in `{folder}`: {reason}", hint="make it writable for this user, or set SBX_HOME"
    )


def no_wal_error(file: Path) -> StoreError:
    """The file system cannot share memory between processes, so they could not share the store either."""
    return StoreError(
        f"cannot share the store `{file}` between processes: its file system cannot do that", hint=_LOCAL_DISK
    )


def _io_error(error: sqlite3.Error, file: Path) -> StoreError:
    name = getattr(error, "sqlite_errorname", "") or str(error)
    if _is_full(file):
        reason, hint = _WORDS[sqlite3.SQLITE_FULL]
        return StoreUnwritable(f"cannot write the store `{file}`: {reason}", hint=hint)
    hint = "check the disk and its quota; on a network file system put SBX_HOME on a disk of this machine"
    if name.endswith(_WRITING_NAMES):
        return StoreUnwritable(f"cannot write the store `{file}`: writing the disk failed ({name})", hint=hint)
    return StoreError(f"cannot use the store `{file}`: reading or writing the disk failed ({name})", hint=hint)


def _is_full(file: Path) -> bool:
    try:
        return os.statvfs(file.parent).f_bavail == 0
    except OSError:
        return False


def _code(error: sqlite3.Error) -> int:
    return int(getattr(error, "sqlite_errorcode", 0) or 0) & _PRIMARY_CODE
