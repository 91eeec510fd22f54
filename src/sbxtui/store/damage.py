"""A damaged SQLite file: how it is told from others, and what becomes of it."""

from __future__ import annotations

import sqlite3
from datetime import datetime
from pathlib import Path

from sbxtui.store import failures

_SIDE_FILES = ("", "-wal", "-shm")


def corruption(words: str) -> sqlite3.DatabaseError:
    """SQLite's own error for a damaged file, for damage that it has no error for."""
    error = sqlite3.DatabaseError(words)
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return error


def check_pages(connection: sqlite3.Connection) -> None:
    """Look at every page of a file.

    Raises:
        sqlite3.DatabaseError: One is damaged; `failures.is_corruption` says so.
    """
    (words,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if words != "ok":
        raise corruption(words)


def keep_aside(file: Path, now: datetime) -> Path:
    """Give a damaged file another name beside its own; returns that one.

    Only under `locks.only_opener`, and after a look under it: it may be the new file of another process by then.

    Raises:
        StoreError: It cannot be renamed.
    """
    stamp = now.strftime("%Y%m%dT%H%M%SZ")
    kept = file.with_name(f"{file.name}.corrupt-{stamp}")
    number = 2
    while kept.exists():
        kept = file.with_name(f"{file.name}.corrupt-{stamp}-{number}")
        number += 1
    try:
        for suffix in _SIDE_FILES:
            side = file.with_name(file.name + suffix)
            if side.exists():
                side.rename(kept.with_name(kept.name + suffix))
    except OSError as exc:
        raise failures.folder_error(exc, file.parent) from exc
    return kept
