"""The SQLite file of `ancestors`: its tables, and how it is opened."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from sbxtui.core.errors import StoreTooNew
from sbxtui.store import damage

# Since 2, contents are named by BLAKE3.
SCHEMA_VERSION = 2
_BUSY_TIMEOUT_S = 15.0
# The fact of a file that it holds a record which is none.
DAMAGED = "damaged"
_TABLES = (
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE base (path BLOB PRIMARY KEY, local BLOB NOT NULL, guest BLOB NOT NULL) WITHOUT ROWID",
    "CREATE TABLE batch (number INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, word TEXT NOT NULL)",
    """CREATE TABLE step (
        batch INTEGER NOT NULL, seq INTEGER NOT NULL, side TEXT NOT NULL, path BLOB NOT NULL,
        before BLOB NOT NULL, after BLOB NOT NULL, is_done INTEGER NOT NULL, PRIMARY KEY (batch, seq)) WITHOUT ROWID""",
    """CREATE TABLE conflict (
        path BLOB PRIMARY KEY, base BLOB NOT NULL, local BLOB NOT NULL, guest BLOB NOT NULL) WITHOUT ROWID""",
)

# Made where they are missing: an older sbx passes over them.
_LATER_TABLES = (
    """CREATE TABLE IF NOT EXISTS taken (
        path BLOB PRIMARY KEY, was_there INTEGER NOT NULL, is_there INTEGER NOT NULL) WITHOUT ROWID""",
    "CREATE TABLE IF NOT EXISTS left_over (batch INTEGER PRIMARY KEY)",
    "CREATE TABLE IF NOT EXISTS text (digest BLOB PRIMARY KEY, content BLOB NOT NULL)",
)


def connect(file: Path) -> sqlite3.Connection:
    """Open it, or make it; the caller closes it.

    Raises:
        StoreTooNew: A newer sbx wrote it; it is untouched. sqlite3.Error: It is damaged, or cannot be opened.
    """
    connection = sqlite3.connect(file, timeout=_BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
    try:
        _check(connection, file)
        for table in _LATER_TABLES:
            connection.execute(table)
        # A commit lost in a power cut is like a state that was lost: nothing is deleted for it.
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        damage.check_pages(connection)
        if connection.execute("SELECT 1 FROM meta WHERE key = ?", (DAMAGED,)).fetchone():
            raise damage.corruption("a record could not be read")
    except BaseException:
        connection.close()
        raise
    return connection


def _check(connection: sqlite3.Connection, file: Path) -> None:
    """Make the tables of a new file; refuse a newer sbx's.

    What an older one agreed on by another digest agrees with nothing any more: that is like a file that was lost.
    """
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if version > SCHEMA_VERSION:
        raise StoreTooNew(
            f"what is known of this link was written by a newer sbx (`{file}`, schema {version})",
            hint="upgrade this sbx; the file was left as it is",
        )
    if version == SCHEMA_VERSION:
        return
    connection.execute("BEGIN IMMEDIATE")
    # Another process may have made them while this one waited.
    if connection.execute("PRAGMA user_version").fetchone()[0] < SCHEMA_VERSION:
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            if not name.startswith("sqlite_"):
                connection.execute(f"DROP TABLE {name}")
        for table in _TABLES:
            connection.execute(table)
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    connection.execute("COMMIT")
