"""The tables of the store. The schema is the contract between processes of different versions.

A migration only adds: tables, columns with defaults, indexes. So an older sbx can go on with a newer file unless
`min_reader` says otherwise, which a migration raises only when older code would do harm.
"""

from __future__ import annotations

import sqlite3

from sbxtui.core.values import dataclass


@dataclass(frozen=True, slots=True)
class Migration:
    """What turns version n-1 into n; `min_reader` is the oldest version that may still open the result."""

    min_reader: int
    statements: tuple[str, ...]


_FIRST = Migration(
    min_reader=1,
    statements=(
        "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
        """CREATE TABLE contexts (
            name TEXT PRIMARY KEY, kind TEXT NOT NULL, region TEXT NOT NULL, profile TEXT NOT NULL,
            account_id TEXT NOT NULL, endpoint_url TEXT NOT NULL, added_at TEXT NOT NULL) WITHOUT ROWID""",
        """CREATE TABLE registrations (
            context TEXT NOT NULL, name TEXT NOT NULL, sandbox_id TEXT NOT NULL DEFAULT '', phase TEXT NOT NULL,
            request TEXT NOT NULL, client_token TEXT NOT NULL, owner TEXT NOT NULL, created_at TEXT NOT NULL,
            endpoint TEXT NOT NULL DEFAULT '', labels TEXT NOT NULL DEFAULT '{}', facts TEXT NOT NULL DEFAULT '{}',
            PRIMARY KEY (context, name)) WITHOUT ROWID""",
        # One machine never has two names: losing either would look like losing the machine.
        "CREATE UNIQUE INDEX registrations_by_id ON registrations (context, sandbox_id) WHERE sandbox_id <> ''",
        """CREATE TABLE leases (
            kind TEXT NOT NULL, key TEXT NOT NULL, owner TEXT NOT NULL, data TEXT NOT NULL,
            acquired_at TEXT NOT NULL, expires_at TEXT, PRIMARY KEY (kind, key)) WITHOUT ROWID""",
        # AUTOINCREMENT: a pruned number must never come back, readers remember the last one they saw.
        """CREATE TABLE events (
            seq INTEGER PRIMARY KEY AUTOINCREMENT, at TEXT NOT NULL, context TEXT NOT NULL, kind TEXT NOT NULL,
            subject TEXT NOT NULL, actor TEXT NOT NULL, data TEXT NOT NULL)""",
        "CREATE INDEX events_by_subject ON events (context, subject, seq)",
        """CREATE TABLE tokens (
            context TEXT NOT NULL, sandbox_id TEXT NOT NULL, ports TEXT NOT NULL, value TEXT NOT NULL,
            minted_at TEXT NOT NULL, expires_at TEXT NOT NULL,
            PRIMARY KEY (context, sandbox_id, ports)) WITHOUT ROWID""",
    ),
)

_SEED = Migration(
    min_reader=1,
    statements=(
        """CREATE TABLE outputs (
            context TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL, source TEXT NOT NULL,
            set_at TEXT NOT NULL, PRIMARY KEY (context, name)) WITHOUT ROWID""",
        """CREATE TABLE seed_files (
            path TEXT NOT NULL, context TEXT NOT NULL, mtime_ns INTEGER NOT NULL, size_bytes INTEGER NOT NULL,
            read_at TEXT NOT NULL, PRIMARY KEY (path, context)) WITHOUT ROWID""",
    ),
)

_JOBS = Migration(
    min_reader=1,
    statements=(
        """CREATE TABLE jobs (
            context TEXT NOT NULL, sandbox_id TEXT NOT NULL, job_id TEXT NOT NULL, boot_id TEXT NOT NULL,
            command TEXT NOT NULL, actor TEXT NOT NULL, label TEXT NOT NULL, has_terminal INTEGER NOT NULL,
            has_stdin INTEGER NOT NULL, created_at TEXT NOT NULL, ended_at TEXT, outcome TEXT NOT NULL DEFAULT '{}',
            PRIMARY KEY (context, sandbox_id, job_id)) WITHOUT ROWID""",
        "CREATE INDEX jobs_by_age ON jobs (created_at)",
    ),
)

_LINKS = Migration(
    min_reader=1,
    statements=(
        """CREATE TABLE links (
            context TEXT NOT NULL, kind TEXT NOT NULL, sandbox TEXT NOT NULL, sandbox_id TEXT NOT NULL,
            spec TEXT NOT NULL, wanted TEXT NOT NULL, is_detached INTEGER NOT NULL, owner TEXT NOT NULL,
            status TEXT NOT NULL, made_at TEXT NOT NULL, seen_at TEXT NOT NULL,
            PRIMARY KEY (context, kind, sandbox)) WITHOUT ROWID""",
    ),
)

_CLIENTS = Migration(
    min_reader=1,
    statements=(
        """CREATE TABLE clients (
            actor TEXT PRIMARY KEY, name TEXT NOT NULL, owner TEXT NOT NULL, allowed TEXT NOT NULL,
            connected_at TEXT NOT NULL, seen_at TEXT NOT NULL, tool TEXT NOT NULL, code TEXT NOT NULL,
            calls INTEGER NOT NULL) WITHOUT ROWID""",
    ),
)

_APPROVALS = Migration(
    min_reader=1,
    statements=(
        # AUTOINCREMENT: an answer must never reach another call than the one that was read.
        """CREATE TABLE approvals (
            id INTEGER PRIMARY KEY AUTOINCREMENT, actor TEXT NOT NULL, owner TEXT NOT NULL, tool TEXT NOT NULL,
            words TEXT NOT NULL, answer TEXT NOT NULL DEFAULT '', asked_at TEXT NOT NULL, expires_at TEXT NOT NULL)""",
    ),
)

MIGRATIONS = (_FIRST, _SEED, _JOBS, _LINKS, _CLIENTS, _APPROVALS)
SCHEMA_VERSION = len(MIGRATIONS)


def version_of(connection: sqlite3.Connection) -> int:
    """The schema version of an open file; 0 for an empty one."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def min_reader_of(connection: sqlite3.Connection) -> int:
    """The oldest schema version whose code may use this file; the file's own version if the row is missing."""
    row = connection.execute("SELECT value FROM meta WHERE key = 'min_reader'").fetchone()
    return int(row[0]) if row else version_of(connection)


def migrate(connection: sqlite3.Connection, migrations: tuple[Migration, ...] = MIGRATIONS) -> None:
    """Bring the file to the last of `migrations`, or leave it as it was.

    Raises:
        sqlite3.Error: Nothing was changed.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        for migration in migrations[version_of(connection) :]:
            for statement in migration.statements:
                connection.execute(statement)
            connection.execute("INSERT OR REPLACE INTO meta VALUES ('min_reader', ?)", (str(migration.min_reader),))
        if version_of(connection) < len(migrations):
            connection.execute(f"PRAGMA user_version = {len(migrations)}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
