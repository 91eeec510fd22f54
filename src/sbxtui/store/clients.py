"""Clients of our MCP servers: who is there, what each asked for last, and whether a person lets it go on.

A row belongs to the process that serves the client; a dead one's row is nothing.
"""

from __future__ import annotations

from typing import Any

from sbxtui.core.clients import Allowed, McpClient
from sbxtui.core.errors import AmbiguousReference, NotFound
from sbxtui.core.text import harmless_line
from sbxtui.store.approvals import Approvals
from sbxtui.store.codec import instant_of, instant_text
from sbxtui.store.db import Store, Transaction
from sbxtui.store.events import append
from sbxtui.store.leases import is_owner_alive

_COLUMNS = "actor, name, owner, allowed, connected_at, seen_at, tool, code, calls"


class Clients:
    """The clients of a home. `approvals` are their calls that wait for a person."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.approvals = Approvals(store)

    def connected(self, actor: str, name: str, owner: str, allowed: Allowed = Allowed.RUNNING) -> None:
        """A client is there, served by `owner`; rows of dead processes go."""
        with self._store.best_effort("a client"), self._store.transaction() as transaction:
            _forget_dead(transaction)
            now = instant_text(transaction.now)
            changed = transaction.execute(
                f"INSERT OR IGNORE INTO clients ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, '', '', 0)",
                (actor, name, owner, allowed.value, now, now),
            )
            if changed:
                append(transaction, context="", kind="client.connected", subject=name, actor=actor)

    def called(self, actor: str, tool: str, code: str, calls: int = 1) -> None:
        """It asked for so many things, the last of which was `tool` and ended so."""
        with self._store.best_effort("a call of a client"), self._store.transaction() as transaction:
            transaction.execute(
                "UPDATE clients SET tool = ?, code = ?, seen_at = ?, calls = calls + ? WHERE actor = ?",
                (tool, code, instant_text(transaction.now), calls, actor),
            )

    def allowed(self, actor: str) -> Allowed:
        """What a person lets a client do."""
        rows = self._store.rows("SELECT allowed FROM clients WHERE actor = ?", (actor,))
        return Allowed(rows[0][0]) if rows else Allowed.RUNNING

    def left(self, actor: str) -> None:
        """It is there no more."""
        with self._store.best_effort("that a client left"), self._store.transaction() as transaction:
            transaction.execute("DELETE FROM clients WHERE actor = ?", (actor,))

    def list(self) -> list[McpClient]:
        """Those whose process lives, oldest first."""
        rows = self._store.rows(f"SELECT {_COLUMNS} FROM clients ORDER BY connected_at")
        return [client for client in map(_client_of, rows) if is_owner_alive(client.owner)]

    def find(self, reference: str) -> McpClient:
        """The client that is called so: by its actor, its name or the number of its process.

        Raises:
            NotFound: None. AmbiguousReference: Several.
        """
        found = [
            client
            for client in self.list()
            if reference in (client.actor, client.actor.removeprefix("mcp:"), client.name, client.owner.split(":")[0])
        ]
        if not found:
            told = harmless_line(reference, limit=80)
            raise NotFound(f"no client `{told}` is connected", hint="`sbx mcp ls` lists them")
        if len(found) > 1:
            names = ", ".join(client.actor for client in found)
            raise AmbiguousReference(f"several clients are `{harmless_line(reference)}`", hint=f"one of {names}")
        return found[0]

    def allow(self, client: McpClient, allowed: Allowed, *, actor: str) -> None:
        """Let a client go on, wait, or end; its process hears the doorbell."""
        with self._store.transaction() as transaction:
            changed = transaction.execute(
                "UPDATE clients SET allowed = ? WHERE actor = ?", (allowed.value, client.actor)
            )
            if changed:
                append(transaction, context="", kind=f"client.{allowed.value}", subject=client.actor, actor=actor)


def _forget_dead(transaction: Transaction) -> None:
    for row in transaction.rows(f"SELECT {_COLUMNS} FROM clients"):
        client = _client_of(row)
        if not is_owner_alive(client.owner):
            transaction.execute("DELETE FROM clients WHERE actor = ?", (client.actor,))


def _client_of(row: tuple[Any, ...]) -> McpClient:
    actor, name, owner, allowed, connected_at, seen_at, tool, code, calls = row
    return McpClient(
        actor, name, owner, Allowed(allowed), instant_of(connected_at), instant_of(seen_at), tool, code, calls
    )
