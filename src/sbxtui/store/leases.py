"""Leases: what one live process at a time may do, and what somebody must clean up when that process died."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sbxtui.core.values import dataclass
from sbxtui.identity import ProcessIdentity
from sbxtui.store.codec import instant_of, instant_text, object_of, object_text
from sbxtui.store.db import Store, Transaction

_COLUMNS = "kind, key, owner, data, acquired_at, expires_at"


@dataclass(frozen=True, slots=True)
class Lease:
    """A right of one process; `owner` is the text of its identity. Without `expires_at` it ends with that process."""

    kind: str
    key: str
    owner: str
    data: Mapping[str, object]
    acquired_at: datetime
    expires_at: datetime | None


def is_owner_alive(owner: str) -> bool:
    """Whether the process an owner text names still runs here; a text that names none does not."""
    try:
        return ProcessIdentity.parse(owner).is_alive
    except ValueError:
        return False


class Leases:
    """The leases of a home."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def acquire(
        self,
        kind: str,
        key: str,
        *,
        owner: str,
        data: Mapping[str, object] | None = None,
        expires_at: datetime | None = None,
    ) -> bool:
        """Take a lease if nobody alive holds it: free, expired, or its owner died.

        Not re-entrant: an owner that holds it gets False, so that two tasks of one process exclude each other too.
        """
        with self._store.transaction() as transaction:
            return acquire(transaction, kind, key, owner=owner, data=data, expires_at=expires_at)

    def release(self, kind: str, key: str, *, owner: str) -> bool:
        """Give a lease back. False when it was no longer this owner's."""
        with self._store.transaction() as transaction:
            return release(transaction, kind, key, owner=owner)

    def get(self, kind: str, key: str) -> Lease | None:
        """A lease as it stands, alive or dead."""
        rows = self._store.rows(f"SELECT {_COLUMNS} FROM leases WHERE kind = ? AND key = ?", (kind, key))
        return _lease_of(rows[0]) if rows else None

    def list(self, kind: str) -> list[Lease]:
        """All leases of a kind, alive or dead."""
        rows = self._store.rows(f"SELECT {_COLUMNS} FROM leases WHERE kind = ? ORDER BY key", (kind,))
        return [_lease_of(row) for row in rows]

    def dead(self, kind: str) -> builtins.list[Lease]:
        """Leases that expired or whose owner no longer runs: work for whoever `claim`s it first."""
        now = self._store.now()
        return [lease for lease in self.list(kind) if not _is_live(lease, now)]

    def claim(self, lease: Lease, owner: str, *, expires_at: datetime | None = None) -> bool:
        """Take over exactly this dead lease with its data. False when somebody was faster."""
        with self._store.transaction() as transaction:
            changed = transaction.execute(
                "UPDATE leases SET owner = ?, acquired_at = ?, expires_at = ?"
                " WHERE kind = ? AND key = ? AND owner = ? AND acquired_at = ? AND expires_at IS ?",
                (
                    *(owner, instant_text(transaction.now), _expiry_text(expires_at)),
                    *(lease.kind, lease.key, lease.owner, instant_text(lease.acquired_at)),
                    _expiry_text(lease.expires_at),
                ),
            )
        return changed == 1


def acquire(
    transaction: Transaction,
    kind: str,
    key: str,
    *,
    owner: str,
    data: Mapping[str, object] | None = None,
    expires_at: datetime | None = None,
) -> bool:
    """`Leases.acquire` as part of a larger change."""
    row = transaction.row(f"SELECT {_COLUMNS} FROM leases WHERE kind = ? AND key = ?", (kind, key))
    if row is not None and _is_live(_lease_of(row), transaction.now):
        return False
    transaction.execute(
        f"INSERT OR REPLACE INTO leases ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)",
        (kind, key, owner, object_text(data or {}), instant_text(transaction.now), _expiry_text(expires_at)),
    )
    return True


def release(transaction: Transaction, kind: str, key: str, *, owner: str) -> bool:
    """`Leases.release` as part of a larger change."""
    sql = "DELETE FROM leases WHERE kind = ? AND key = ? AND owner = ?"
    return transaction.execute(sql, (kind, key, owner)) == 1


def sweep(transaction: Transaction, kind: str) -> None:
    """Forget the dead leases of a kind: for those that leave nothing to clean up."""
    for row in transaction.rows(f"SELECT {_COLUMNS} FROM leases WHERE kind = ?", (kind,)):
        lease = _lease_of(row)
        if not _is_live(lease, transaction.now):
            release(transaction, kind, lease.key, owner=lease.owner)


def _is_live(lease: Lease, now: datetime) -> bool:
    return (lease.expires_at is None or lease.expires_at > now) and is_owner_alive(lease.owner)


def _expiry_text(expires_at: datetime | None) -> str | None:
    return None if expires_at is None else instant_text(expires_at)


def _lease_of(row: tuple[Any, ...]) -> Lease:
    kind, key, owner, data, acquired_at, expires_at = row
    expiry = None if expires_at is None else instant_of(expires_at)
    return Lease(kind, key, owner, object_of(data), instant_of(acquired_at), expiry)
