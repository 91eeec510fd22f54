"""What two folders last agreed on: one SQLite file per link, apart from the store, because it may be large.

A row changes only after both sides are known to hold what it says. Losing the file loses no work: then nothing is known
to be agreed on, so what only one side has is copied and what differs is a conflict.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
import threading
import time
import zlib
from collections.abc import AsyncIterator, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from sbxguest.tree.entry import CONTENT_AT, BadRecord, State, decode_state, encode_state
from sbxtui.core.errors import StoreError, TimedOut
from sbxtui.home import private_dir
from sbxtui.store import damage, failures, locks
from sbxtui.store.ancestorfile import DAMAGED, connect
from sbxtui.store.codec import utc_now

log = logging.getLogger(__name__)

_LOCK_POLL_S = 0.02
_KEPT_BATCHES = 1_000
# Of what is agreed on: how many rows go in by one statement, of how many values each.
_ROWS, _COLUMNS = 100, 3
_MAX_TEXTS_BYTES = 256 * 1024**2


class Agreed(NamedTuple):
    """One path as both sides have it, with the stamps each had when that was seen."""

    local: State
    guest: State


@dataclass(frozen=True, slots=True)
class Step:
    """One change that was made on one side. `before` and `after` are what stood there; None is nothing."""

    side: str
    path: bytes
    before: State | None
    after: State | None


@dataclass(frozen=True, slots=True)
class Batch:
    """Changes made together, in their order, for `undo`.

    Attributes:
        at_s: Seconds since the epoch.
        word: What made them.
        is_left_over: They are what could not be taken back when all of the batch was to be.
    """

    number: int
    at_s: float
    word: str
    steps: tuple[Step, ...]
    is_left_over: bool = False


@dataclass(frozen=True, slots=True)
class Dispute:
    """A path on which both sides are left as they are."""

    path: bytes
    base: State | None
    local: State | None
    guest: State | None


@dataclass(frozen=True, slots=True)
class Taken:
    """What came to this machine by itself since a person looked last: paths that are gone, and such that are new."""

    gone: frozenset[bytes] = frozenset()
    added: frozenset[bytes] = frozenset()


class Ancestors:
    """The file of one link. Several processes may have it open; who compares and changes holds `cycle`.

    Attributes:
        notice: What a person should be told: a damaged file was put aside. Else empty.
    """

    def __init__(self, file: Path, connection: sqlite3.Connection, notice: str) -> None:
        self.file = file
        self.notice = notice
        self._connection = connection
        # A thread that nobody waits for any more may still be in it: SQLite does not survive being closed under it.
        self._using = threading.RLock()

    @classmethod
    def open(cls, file: Path) -> Ancestors:
        """Open or make a file; a damaged one is kept aside under another name. The caller closes it.

        Raises:
            StoreTooNew: A newer sbx wrote it; it is untouched. StoreError: It cannot be read or written.
        """
        private_dir(file.parent)
        with locks.only_opener(file):
            try:
                return cls(file, connect(file), "")
            except sqlite3.DatabaseError as exc:
                if not failures.is_corruption(exc):
                    raise failures.store_error(exc, file) from exc
            kept = damage.keep_aside(file, utc_now())
            log.error("what was known of a link was damaged; kept aside as %s", kept)
            try:
                connection = connect(file)
            except sqlite3.Error as exc:
                raise failures.store_error(exc, file) from exc
        return cls(file, connection, f"what was known of this link was damaged: it is kept as {kept.name}")

    def close(self) -> None:
        """Close the file, once no thread is in it; who asks it something later gets a StoreError."""
        with self._using:
            self._connection.close()

    @contextlib.asynccontextmanager
    async def cycle(self, *, timeout_s: float) -> AsyncIterator[None]:
        """Be the only one that compares and changes these two folders, for as long as the block lasts.

        Raises:
            TimedOut: Another process goes on for longer than that.
        """
        deadline_s = time.monotonic() + timeout_s
        while (lock := try_lock(self.file)) is None:
            if time.monotonic() >= deadline_s:
                raise TimedOut(
                    "another process is comparing these folders", hint="wait for it, or stop it, and try again"
                )
            await asyncio.sleep(_LOCK_POLL_S)
        with lock:
            yield

    def version(self) -> int:
        """Another number after another process changed the file."""
        return int(self._rows("PRAGMA data_version")[0][0])

    def meta(self) -> dict[str, str]:
        """Facts about the link: whose state this is."""
        return {str(key): str(value) for key, value in self._rows("SELECT key, value FROM meta")}

    def set_meta(self, facts: Mapping[str, str]) -> None:
        """Set some of the facts."""
        with self._transaction() as connection:
            connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", facts.items())

    def base(self) -> dict[bytes, Agreed]:
        """What both sides agree on."""
        rows = self._each_row("SELECT path, local, guest FROM base")
        with self._decoding(), contextlib.closing(rows):
            return {path: Agreed(_solid(local), _solid(guest)) for path, local, guest in rows}

    def record(self, changes: Mapping[bytes, Agreed | None]) -> None:
        """Both sides agree on these paths from now on; None: that nothing is there, or nothing is known any more."""
        if not changes:
            return
        gone = [(path,) for path, agreed in changes.items() if agreed is None]
        kept = [(path, one) for path, one in changes.items() if one is not None]
        with self._transaction() as connection:
            connection.executemany("DELETE FROM base WHERE path = ?", gone)
            _insert_agreed(connection, kept)

    def forget(self) -> None:
        """Agree on nothing any more: the next comparison is a first contact, and deletes nothing."""
        with self._transaction() as connection:
            for table in ("base", "conflict", "taken"):
                connection.execute(f"DELETE FROM {table}")

    def note_steps(self, word: str, steps: Sequence[Step], *, number: int = 0) -> int:
        """Remember changes that were made, for `undo`: as a new batch, or behind what batch `number` has.

        Returns:
            The batch's number.
        """
        with self._transaction() as connection:
            if not number:
                made = connection.execute("INSERT INTO batch (at, word) VALUES (?, ?)", (time.time(), word))
                number = made.lastrowid or 0
            _insert_steps(connection, number, steps)
            for table, column in (("step", "batch"), ("batch", "number"), ("left_over", "batch")):
                connection.execute(f"DELETE FROM {table} WHERE {column} <= ?", (number - _KEPT_BATCHES,))
        return number

    def batches(self, *, limit: int = 20) -> list[Batch]:
        """The last batches, the newest first."""
        found = self._rows("SELECT number, at, word FROM batch ORDER BY number DESC LIMIT ?", (limit,))
        left = {number for (number,) in self._rows("SELECT batch FROM left_over")}
        return [Batch(number, at, word, self._steps(number), number in left) for number, at, word in found]

    def keep_steps(self, number: int, steps: Sequence[Step]) -> None:
        """Forget all but these of a batch: the others were undone. One of which nothing is left is forgotten."""
        with self._transaction() as connection:
            connection.execute("DELETE FROM step WHERE batch = ?", (number,))
            _insert_steps(connection, number, steps)
            if not steps:
                for table, column in (("batch", "number"), ("left_over", "batch")):
                    connection.execute(f"DELETE FROM {table} WHERE {column} = ?", (number,))

    def leave_over(self, number: int) -> None:
        """Every step of a batch was tried, and those that are still in it could not be taken back."""
        with self._transaction() as connection:
            connection.execute("INSERT OR IGNORE INTO left_over VALUES (?)", (number,))

    def note_taken(self, steps: Iterable[Step]) -> None:
        """Remember what came to this machine without a person looking at it."""
        rows = [(one.path, one.before is not None, one.after is not None) for one in steps]
        with self._transaction() as connection:
            connection.executemany(
                "INSERT INTO taken VALUES (?, ?, ?) ON CONFLICT (path) DO UPDATE SET is_there = excluded.is_there", rows
            )

    def taken(self) -> Taken:
        """What came to this machine since the last `forget_taken`; what came and went again does not count."""
        rows = self._rows("SELECT path, was_there, is_there FROM taken")
        return Taken(
            frozenset(path for path, was_there, is_there in rows if was_there and not is_there),
            frozenset(path for path, was_there, _ in rows if not was_there),
        )

    def forget_taken(self) -> None:
        """A person looked."""
        with self._transaction() as connection:
            connection.execute("DELETE FROM taken")

    def kept_texts(self) -> set[bytes]:
        """The digests of the texts that `text` has."""
        return {digest for (digest,) in self._each_row("SELECT digest FROM text")}

    def keep_texts(self, texts: Mapping[bytes, bytes]) -> None:
        """Keep contents by their digests, for who merges two edits of them; those of no path that is agreed on go."""
        rows = [(digest, zlib.compress(content, 1)) for digest, content in texts.items()]
        with self._transaction() as connection:
            connection.execute(
                f"DELETE FROM text WHERE digest NOT IN (SELECT substr(local, {CONTENT_AT + 1}) FROM base)"
            )
            (held,) = connection.execute("SELECT COALESCE(SUM(LENGTH(content)), 0) FROM text").fetchone()
            if held + sum(len(content) for _, content in rows) <= _MAX_TEXTS_BYTES:
                connection.executemany("INSERT OR REPLACE INTO text VALUES (?, ?)", rows)

    def text(self, digest: bytes) -> bytes | None:
        """A content that is kept."""
        rows = self._rows("SELECT content FROM text WHERE digest = ?", (digest,))
        return zlib.decompress(rows[0][0]) if rows else None

    def set_disputes(self, disputes: Iterable[Dispute]) -> None:
        """These paths, and no others, are in conflict."""
        rows = [(one.path, _blob(one.base), _blob(one.local), _blob(one.guest)) for one in disputes]
        with self._transaction() as connection:
            connection.execute("DELETE FROM conflict")
            connection.executemany("INSERT INTO conflict VALUES (?, ?, ?, ?)", rows)

    def disputes(self) -> list[Dispute]:
        """The paths that are in conflict, by name."""
        rows = self._rows("SELECT path, base, local, guest FROM conflict ORDER BY path")
        with self._decoding():
            return [Dispute(path, _state(base), _state(local), _state(guest)) for path, base, local, guest in rows]

    def _steps(self, number: int) -> tuple[Step, ...]:
        rows = self._rows("SELECT side, path, before, after FROM step WHERE batch = ? ORDER BY seq", (number,))
        with self._decoding():
            return tuple(Step(side, path, _state(before), _state(after)) for side, path, before, after in rows)

    @contextlib.contextmanager
    def _decoding(self) -> Iterator[None]:
        """A record that is none is damage no check of SQLite finds: whoever opens the file next keeps it aside."""
        try:
            yield
        except BadRecord as exc:
            # Noted in the file itself: a new one that took its place meanwhile is not meant.
            with contextlib.suppress(StoreError):
                self.set_meta({DAMAGED: "1"})
            raise failures.store_error(damage.corruption(str(exc)), self.file) from exc

    def _rows(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        return list(self._each_row(sql, parameters))

    def _each_row(self, sql: str, parameters: Sequence[object] = ()) -> Generator[tuple[Any, ...], None, None]:
        """One by one, for there may be very many. Close it, or ask for all of them."""
        with self._used() as connection:
            yield from connection.execute(sql, parameters)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._used() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    @contextlib.contextmanager
    def _used(self) -> Iterator[sqlite3.Connection]:
        """The connection, for this thread alone."""
        with self._using:
            try:
                yield self._connection
            except sqlite3.Error as exc:
                raise failures.store_error(exc, self.file) from exc


def try_lock(file: Path) -> BinaryIO | None:
    """Be the only one that is at the file of a link, until what is returned is closed; None if somebody else is."""
    return locks.try_lock(file.with_suffix(".lock"))


def _insert_agreed(connection: sqlite3.Connection, agreed: Sequence[tuple[bytes, Agreed]]) -> None:
    # Not as bytes: for each of those the library asks whether somebody registered another way to store them.
    values = [bytearray(value) for path, one in agreed for value in (path, *one)]
    # A statement for many rows takes two thirds of the time of as many statements.
    many, one = _ROWS * _COLUMNS, _COLUMNS
    rest_at = len(values) - len(values) % many
    for begin, end, size in ((0, rest_at, many), (rest_at, len(values), one)):
        places = ", ".join(["(?, ?, ?)"] * (size // _COLUMNS))
        lots = (values[at : at + size] for at in range(begin, end, size))
        connection.executemany(f"INSERT OR REPLACE INTO base VALUES {places}", lots)


def _insert_steps(connection: sqlite3.Connection, number: int, steps: Sequence[Step]) -> None:
    (first,) = connection.execute("SELECT COALESCE(MAX(seq) + 1, 0) FROM step WHERE batch = ?", (number,)).fetchone()
    numbered = enumerate(steps, first)
    rows = [(number, seq, one.side, one.path, _blob(one.before), _blob(one.after)) for seq, one in numbered]
    connection.executemany("INSERT INTO step VALUES (?, ?, ?, ?, ?, ?, 1)", rows)


def _blob(state: State | None) -> bytes:
    """As SQLite takes it: bytes, and no subclass of theirs."""
    return bytes(encode_state(state))


def _state(data: bytes) -> State | None:
    return decode_state(data, 0)[0]


def _solid(data: bytes) -> State:
    state = _state(data)
    if state is None:
        raise BadRecord("nothing was agreed on")
    return state
