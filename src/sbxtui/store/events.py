"""Who changed what, when: appended in the same transaction as the change itself."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from sbxtui.core.model import Event
from sbxtui.store.codec import instant_of, instant_text, object_of, object_text
from sbxtui.store.db import Store, Transaction
from sbxtui.store.spans import Span, spans_of_id, spans_of_name

MAX_EVENTS = 100_000
MAX_AGE = timedelta(days=30)
# Pruning rides on appending, seldom enough to cost nothing.
_PRUNE_EVERY = 512
_NEVER = 1 << 62
_COLUMNS = "seq, at, context, kind, subject, actor, data"


def append(
    transaction: Transaction,
    *,
    context: str,
    kind: str,
    subject: str,
    actor: str,
    data: Mapping[str, object] | None = None,
) -> int:
    """Add an event to a change that is being made; never tokens, credentials, environment or file contents.

    Args:
        transaction: The change; the event exists if and only if it is committed.
        context: Where it happened; empty for what concerns the home.
        kind: Dotted words like `sandbox.renamed`.
        subject: What it happened to: a sandbox's name, an id, a context.
        actor: Who did it, like `cli`, `tui`, `mcp:claude`.
        data: JSON-safe facts.

    Returns:
        The event's number.
    """
    seq = transaction.insert(
        "INSERT INTO events (at, context, kind, subject, actor, data) VALUES (?, ?, ?, ?, ?, ?)",
        (instant_text(transaction.now), context, kind, subject, actor, object_text(data or {})),
    )
    if seq % _PRUNE_EVERY == 0:
        prune(transaction)
    return seq


def prune(transaction: Transaction) -> int:
    """Forget events over 30 days old and all but the newest 100,000; returns how many."""
    newest = transaction.row("SELECT max(seq) FROM events")
    oldest_kept = (newest[0] or 0) - MAX_EVENTS if newest else 0
    too_old = instant_text(transaction.now - MAX_AGE)
    return transaction.execute("DELETE FROM events WHERE seq <= ? OR at < ?", (oldest_kept, too_old))


class Events:
    """The home's event log."""

    def __init__(self, store: Store) -> None:
        self._store = store

    append = staticmethod(append)

    def record(
        self, *, context: str, kind: str, subject: str, actor: str, data: Mapping[str, object] | None = None
    ) -> int:
        """Append one event on its own, for what changed nothing in the store.

        Returns:
            Its number; 0 when a full disk cost it, which undoes nothing of what happened.
        """
        with self._store.best_effort("an event"), self._store.transaction() as transaction:
            return append(transaction, context=context, kind=kind, subject=subject, actor=actor, data=data)
        return 0

    def record_once(
        self, *, context: str, kind: str, subject: str, actor: str, data: Mapping[str, object], within: timedelta
    ) -> bool:
        """Append what several of us may notice at once; False if somebody did so within that time."""
        with self._store.best_effort("an event"), self._store.transaction() as transaction:
            seen = transaction.row(
                "SELECT 1 FROM events WHERE context = ? AND kind = ? AND subject = ? AND data = ? AND at > ?",
                (context, kind, subject, object_text(data), instant_text(transaction.now - within)),
            )
            if seen is None:
                append(transaction, context=context, kind=kind, subject=subject, actor=actor, data=data)
            return seen is None
        return False

    def list(
        self, after_seq: int = 0, *, limit: int = 1_000, context: str | None = None, subject: str | None = None
    ) -> list[Event]:
        """The oldest `limit` events after `after_seq`, in order; call again with the last number for more."""
        where, parameters = _where(context, subject)
        sql = f"SELECT {_COLUMNS} FROM events WHERE seq > ?{where} ORDER BY seq LIMIT ?"
        return [_event_of(row) for row in self._store.rows(sql, (after_seq, *parameters, limit))]

    def tail(self, limit: int = 50, *, context: str | None = None, subject: str | None = None) -> builtins.list[Event]:
        """The newest `limit` events, in order."""
        where, parameters = _where(context, subject)
        sql = f"SELECT {_COLUMNS} FROM events WHERE seq > ?{where} ORDER BY seq DESC LIMIT ?"
        return [_event_of(row) for row in reversed(self._store.rows(sql, (0, *parameters, limit)))]

    def history(self, context: str, name: str, limit: int = 50) -> builtins.list[Event]:
        """The newest `limit` events of the machine that has a name now, under its earlier names, too; in order."""
        return self._within(context, spans_of_name(self._store, context, name, until_seq=_NEVER), limit)

    def history_of_id(self, context: str, sandbox_id: str, limit: int = 50) -> builtins.list[Event]:
        """The same of a machine that has no name any more."""
        return self._within(context, spans_of_id(self._store, context, sandbox_id), limit)

    def _within(self, context: str, spans: Sequence[Span], limit: int) -> builtins.list[Event]:
        found: builtins.list[Event] = []
        for span in spans:
            sql = f"SELECT {_COLUMNS} FROM events WHERE context = ? AND subject = ? AND seq > ? AND seq <= ?"
            parameters = (context, span.subject, span.after_seq, span.until_seq, limit - len(found))
            found += [_event_of(row) for row in self._store.rows(f"{sql} ORDER BY seq DESC LIMIT ?", parameters)]
        return found[::-1]

    def latest_seq(self) -> int:
        """The number of the newest event ever; 0 before the first."""
        rows = self._store.rows("SELECT seq FROM sqlite_sequence WHERE name = 'events'")
        return int(rows[0][0]) if rows else 0

    def prune(self) -> int:
        """Forget events over 30 days old and all but the newest 100,000; returns how many."""
        with self._store.transaction() as transaction:
            return prune(transaction)


def _where(context: str | None, subject: str | None) -> tuple[str, list[str]]:
    sql, parameters = "", []
    for column, value in (("context", context), ("subject", subject)):
        if value is not None:
            sql += f" AND {column} = ?"
            parameters.append(value)
    return sql, parameters


def _event_of(row: tuple[Any, ...]) -> Event:
    seq, at, context, kind, subject, actor, data = row
    return Event(
        seq=seq, at=instant_of(at), context=context, kind=kind, subject=subject, actor=actor, data=object_of(data)
    )
