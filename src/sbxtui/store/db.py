"""The store itself: one connection for all threads of a process, short transactions, foreign errors made ours."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from sbxtui.core.errors import SbxError, StoreError, StoreUnwritable
from sbxtui.home import Home, private_dir
from sbxtui.store import failures, opening
from sbxtui.store.codec import utc_now
from sbxtui.store.doorbell import ring
from sbxtui.store.opening import Opened

Parameters = Sequence[Any]


class Transaction:
    """Statements that are committed together or not at all. `now` is one instant for all of them."""

    __slots__ = ("_connection", "now")

    def __init__(self, connection: sqlite3.Connection, now: datetime) -> None:
        self._connection = connection
        self.now = now

    def execute(self, sql: str, parameters: Parameters = ()) -> int:
        """Run a statement that changes rows; returns how many it changed."""
        return self._connection.execute(sql, parameters).rowcount

    def insert(self, sql: str, parameters: Parameters = ()) -> int:
        """Run an INSERT; returns the new row's number."""
        return self._connection.execute(sql, parameters).lastrowid or 0

    def rows(self, sql: str, parameters: Parameters = ()) -> list[tuple[Any, ...]]:
        """All rows of a query."""
        return self._connection.execute(sql, parameters).fetchall()

    def row(self, sql: str, parameters: Parameters = ()) -> tuple[Any, ...] | None:
        """The first row of a query, or None."""
        found = self._connection.execute(sql, parameters).fetchone()
        return tuple(found) if found is not None else None


class Store:
    """What no cloud can keep, shared by all processes of one home. Safe to use from any thread.

    Every change is one short transaction; after its commit the doorbells of all listeners ring. `notice` is set when
    opening had to put a damaged file aside: faces print it once. On a full disk reading goes on; `unsaved` tells what a
    face did without being able to write it down.
    """

    def __init__(self, home: Home, opened: Opened, clock: Callable[[], datetime]) -> None:
        self.home = home
        self.notice = opened.notice
        self.unsaved: dict[str, StoreUnwritable] = {}
        self._connection = opened.connection
        self._unwritable = opened.unwritable
        self._clock = clock
        self._lock = threading.RLock()
        self._inode = opening.inode_of(home.store_file)
        self._is_closed = False

    @classmethod
    def open(cls, home: Home, *, clock: Callable[[], datetime] = utc_now) -> Store:
        """Open the home's store, making or migrating it when needed; the caller closes it.

        Raises:
            StoreTooNew: A newer sbx wrote it; the file is untouched.
            StoreError: The home's folder cannot be made, or its file neither shared between processes nor read.
        """
        _make_folder(home)
        return cls(home, opening.open_file(home.store_file, clock()), clock)

    @property
    def file(self) -> Path:
        """The SQLite file."""
        return self.home.store_file

    def now(self) -> datetime:
        """The present, by the store's clock."""
        return self._clock()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """One atomic change: committed on leaving, rolled back when the body raises; then the doorbells ring.

        Waits for other writers up to 15 s. Short by contract: no I/O and no await inside, and it does not nest.

        Raises:
            StoreUnwritable: The disk is full, or the like; nothing was changed.
            StoreError: Locked for too long, or damaged; nothing was changed.
        """
        with self._lock:
            self._make_ready()
            if self._unwritable is not None:
                raise self._unwritable
            changes_before = self._connection.total_changes
            with self._translated():
                self._connection.execute("BEGIN IMMEDIATE")
                try:
                    yield Transaction(self._connection, self._clock())
                    self._connection.execute("COMMIT")
                except BaseException:
                    self._roll_back()
                    raise
            has_changed = self._connection.total_changes != changes_before
        if has_changed:
            ring(self.home)

    @contextlib.contextmanager
    def best_effort(self, what: str) -> Iterator[None]:
        """A change that a full disk may cost without harm: it is noted in `unsaved` instead of raised.

        Args:
            what: What is lost then, as people would say it: `an event`, `an endpoint token`.
        """
        try:
            yield
        except StoreUnwritable as exc:
            self.unsaved[what] = exc

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[Transaction]:
        """Read several things as of one moment; changes nothing and rings nothing.

        Raises:
            StoreError: The store cannot be read.
        """
        with self._lock:
            self._make_ready()
            with self._translated():
                self._connection.execute("BEGIN")
                try:
                    yield Transaction(self._connection, self._clock())
                finally:
                    self._roll_back()

    def rows(self, sql: str, parameters: Parameters = ()) -> list[tuple[Any, ...]]:
        """All rows of one query.

        Raises:
            StoreError: The store cannot be read.
        """
        with self._lock:
            self._make_ready(may_nest=True)
            with self._translated():
                return self._connection.execute(sql, parameters).fetchall()

    def close(self) -> None:
        """Close the file; closing twice is harmless."""
        with self._lock:
            self._is_closed = True
            self._connection.close()

    def _make_ready(self, *, may_nest: bool = False) -> None:
        if self._is_closed:
            raise StoreError(f"the store `{self.file}` is closed")
        if self._connection.in_transaction:
            if may_nest:
                return
            raise RuntimeError("store transactions do not nest")
        # Another process may have put a damaged file aside, or a person removed the home: writing on into a file
        # without a name would lose every change.
        # A copy in memory grows old at once, and the disk may have room again.
        if self._unwritable is not None or opening.inode_of(self.file) != self._inode:
            self._reopen()

    def _reopen(self) -> None:
        """The new file first: if it cannot be opened, the next call finds everything as it was and tries again."""
        _make_folder(self.home)
        opened = opening.open_file(self.file, self._clock())
        old, self._connection = self._connection, opened.connection
        self._unwritable = opened.unwritable
        self.notice = opened.notice or self.notice
        self._inode = opening.inode_of(self.file)
        with contextlib.suppress(sqlite3.Error):
            old.close()

    def _roll_back(self) -> None:
        # SQLite rolls back by itself on a full disk or I/O error; a second ROLLBACK would hide that error.
        if self._connection.in_transaction:
            with contextlib.suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.ProgrammingError as exc:
            if self._is_closed:
                raise StoreError(f"the store `{self.file}` is closed") from exc
            raise
        except sqlite3.Error as exc:
            if failures.is_corruption(exc):
                with contextlib.suppress(OSError):
                    opening.suspect_file(self.file).touch(mode=0o600)
            raise failures.store_error(exc, self.file) from exc


def _make_folder(home: Home) -> None:
    try:
        private_dir(home.state_dir)
    except SbxError as exc:
        raise StoreError(exc.message, hint=exc.hint) from exc
