"""Opening the store's file: new, current, older, newer, damaged, or on a file system that cannot hold it."""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
from datetime import datetime
from pathlib import Path

from sbxtui.core.errors import StoreError, StoreTooNew, StoreUnwritable
from sbxtui.core.values import dataclass
from sbxtui.store import damage, failures, locks, schema

log = logging.getLogger(__name__)

BUSY_TIMEOUT_S = 15.0
_COPY_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class StoreNotice:
    """What a person should be told once, because opening the store changed something they own."""

    message: str
    hint: str
    kept_file: Path


@dataclass(frozen=True, slots=True)
class Opened:
    """A ready connection, and the notice if the file had to be replaced.

    With `unwritable`, the connection is to a copy in memory of what the file holds now: for reading only.
    """

    connection: sqlite3.Connection
    notice: StoreNotice | None = None
    unwritable: StoreUnwritable | None = None


def open_file(file: Path, now: datetime) -> Opened:
    """Open or create the store's file; its folder exists. Where it cannot be written, a copy to read is opened.

    Raises:
        StoreTooNew: A newer sbx wrote it; the file is untouched.
        StoreError: It cannot be opened, written, locked or shared.
    """
    connection = _open_current(file)
    if connection is not None:
        return Opened(connection)
    try:
        with locks.only_opener(file):
            # Whoever had the lock before may have made it.
            connection = _open_current(file)
            return Opened(connection) if connection is not None else _open_any(file, now)
    except StoreUnwritable as exc:
        return Opened(_copy(file), unwritable=exc)


def inode_of(file: Path) -> tuple[int, int]:
    """Which file a path means now; zeros when it means none."""
    try:
        status = file.stat()
    except OSError:
        return (0, 0)
    return (status.st_dev, status.st_ino)


def suspect_file(file: Path) -> Path:
    """The marker that makes the next opening look at every page of the file."""
    return file.with_name(file.name + ".suspect")


def _open_current(file: Path) -> sqlite3.Connection | None:
    """The quick way in: an intact file of exactly our version. None for everything else."""
    if _is_blank(file) or suspect_file(file).exists():
        return None
    connection = None
    try:
        connection = _connect(file)
        if schema.version_of(connection) == schema.SCHEMA_VERSION and _mode_of(connection) == "wal":
            return connection
    except sqlite3.Error as exc:
        log.debug("store needs the slow way in: %s", exc)
    if connection is not None:
        connection.close()
    return None


def _open_any(file: Path, now: datetime) -> Opened:
    notice = None
    if _is_damaged(file):
        notice = _keep_aside(file, now)
    try:
        suspect_file(file).unlink(missing_ok=True)
        if not file.exists():
            os.close(os.open(file, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
    except OSError as exc:
        raise failures.folder_error(exc, file.parent) from exc
    connection = None
    try:
        connection = _connect(file)
        _check_reader(connection, file)
        if _mode_of(connection, "WAL") != "wal":
            raise failures.no_wal_error(file)
        schema.migrate(connection)
    except sqlite3.Error as exc:
        if connection is not None:
            connection.close()
        raise failures.store_error(exc, file) from exc
    except StoreError:
        if connection is not None:
            connection.close()
        raise
    return Opened(connection, notice)


def _copy(file: Path) -> sqlite3.Connection:
    """What the file holds, in memory. Opening a WAL file needs room for its shared index, and there is none."""
    copy = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    try:
        if not _is_blank(file):
            # An exclusive user needs no shared index. It excludes others only while it copies; where others have the
            # file open already, their index is there and this was not needed.
            source = sqlite3.connect(f"{file.as_uri()}?mode=rw", uri=True, timeout=_COPY_TIMEOUT_S)
            with contextlib.closing(source):
                source.execute("PRAGMA locking_mode = EXCLUSIVE")
                # Takes the lock, or fails in time: a backup would wait for it for ever.
                source.execute("SELECT count(*) FROM sqlite_master").fetchone()
                source.backup(copy)
            _check_reader(copy, file)
        schema.migrate(copy)
    except sqlite3.Error as exc:
        copy.close()
        raise failures.store_error(exc, file) from exc
    except StoreError:
        copy.close()
        raise
    return copy


def _connect(file: Path) -> sqlite3.Connection:
    # One connection serves all threads of the process, behind the store's own lock.
    connection = sqlite3.connect(file, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
    try:
        # A launch is persisted before it is billed, so a commit must survive a power cut, not only a crash.
        connection.execute("PRAGMA synchronous = FULL")
    except sqlite3.Error:
        # Left open, it would keep its lock for as long as the error is looked at.
        connection.close()
        raise
    return connection


def _mode_of(connection: sqlite3.Connection, wanted: str = "") -> str:
    row = connection.execute(f"PRAGMA journal_mode{'=' + wanted if wanted else ''}").fetchone()
    return str(row[0]).lower()


def _check_reader(connection: sqlite3.Connection, file: Path) -> None:
    version = schema.version_of(connection)
    if version <= schema.SCHEMA_VERSION:
        return
    needed = schema.min_reader_of(connection)
    if needed > schema.SCHEMA_VERSION:
        raise StoreTooNew(
            f"the store `{file}` was written by a newer sbx (schema {version}, this one knows {schema.SCHEMA_VERSION})",
            hint="upgrade this sbx, or use another home with SBX_HOME; the file was left as it is",
            details={"file": str(file), "schema": version, "known": schema.SCHEMA_VERSION},
        )


def _is_blank(file: Path) -> bool:
    """Whether there is no file yet, or nothing in it.

    What is in it only SQLite may look at: POSIX locks belong to the process, so that closing the file after a look of
    our own would give up those of every other connection this process has (sqlite.org/howtocorrupt.html, 2.2).
    """
    try:
        return file.stat().st_size == 0
    except OSError:
        return True


def _is_damaged(file: Path) -> bool:
    """Whether the file holds something that is no readable database. Missing and empty files are not damaged."""
    try:
        if not file.exists() or _is_blank(file):
            return False
        if not file.is_file():
            raise StoreError(f"the store `{file}` is no file", hint="move it away, or set SBX_HOME")
        if not os.access(file, os.R_OK):
            return False
    except OSError as exc:
        raise failures.folder_error(exc, file.parent) from exc
    connection = None
    try:
        connection = _connect(file)
        if suspect_file(file).exists():
            damage.check_pages(connection)
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.Error as exc:
        if failures.is_corruption(exc):
            return True
        raise failures.store_error(exc, file) from exc
    finally:
        if connection is not None:
            connection.close()
    return False


def _keep_aside(file: Path, now: datetime) -> StoreNotice:
    kept = damage.keep_aside(file, now)
    # The notice is what a person is told; this is for whoever follows what happened.
    log.info("the store was damaged; kept aside as %s", kept)
    return StoreNotice(
        f"the store `{file}` was damaged: it was kept as `{kept.name}` and a new one was started, without names",
        "`sbx ls` lists what still runs as untracked; `sbx adopt ID NAME` gives it a name again",
        kept,
    )
