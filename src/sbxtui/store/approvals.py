"""Calls of MCP clients that wait for a person: until somebody approves or denies one, or its time is over.

A row belongs to the process in which the call waits; a dead one's row is nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from sbxtui.core.clients import Answer, Approval
from sbxtui.core.errors import NotFound
from sbxtui.core.text import harmless_line
from sbxtui.store.codec import instant_of, instant_text
from sbxtui.store.db import Store, Transaction
from sbxtui.store.events import append
from sbxtui.store.leases import is_owner_alive

_COLUMNS = "id, actor, owner, tool, words, answer, asked_at, expires_at"


class Approvals:
    """The waiting calls of a home."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def ask(self, actor: str, owner: str, tool: str, words: str, *, wait_s: float) -> int:
        """Have a call wait; its number. Rows of dead processes go."""
        with self._store.transaction() as transaction:
            _forget_dead(transaction)
            now = transaction.now
            number = transaction.insert(
                "INSERT INTO approvals (actor, owner, tool, words, asked_at, expires_at) VALUES (?, ?, ?, ?, ?, ?)",
                (actor, owner, tool, words, instant_text(now), instant_text(now + timedelta(seconds=wait_s))),
            )
            # Words of a call may be secrets, and events are shown to everybody: its tool will do.
            data = {"approval": number, "tool": tool}
            append(transaction, context="", kind="client.asks", subject=actor, actor=actor, data=data)
        return number

    def answer_of(self, number: int) -> Answer:
        """What was said of a call so far."""
        rows = self._store.rows("SELECT answer FROM approvals WHERE id = ?", (number,))
        return Answer(rows[0][0]) if rows else Answer.NONE

    def over(self, number: int) -> None:
        """The call waits no more."""
        with self._store.best_effort("that a call waits no more"), self._store.transaction() as transaction:
            transaction.execute("DELETE FROM approvals WHERE id = ?", (number,))

    def list(self) -> Sequence[Approval]:
        """Those that wait for an answer, oldest first."""
        sql = f"SELECT {_COLUMNS} FROM approvals WHERE answer = '' AND expires_at > ? ORDER BY id"
        rows = self._store.rows(sql, (instant_text(self._store.now()),))
        return [one for one in map(_approval_of, rows) if is_owner_alive(one.owner)]

    def find(self, reference: str) -> Approval:
        """The waiting call of that number.

        Raises:
            NotFound: None waits under it.
        """
        for one in self.list():
            if reference == str(one.id):
                return one
        told = harmless_line(reference, limit=40)
        raise NotFound(f"no call `{told}` waits for an answer", hint="`sbx mcp ls` lists those that do")

    def answer(self, approval: Approval, answer: Answer, *, actor: str) -> None:
        """Let a call go on, or refuse it; its process hears the doorbell.

        Raises:
            NotFound: It has its answer, or waits no more.
        """
        with self._store.transaction() as transaction:
            changed = transaction.execute(
                "UPDATE approvals SET answer = ? WHERE id = ? AND answer = ''", (answer.value, approval.id)
            )
            if not changed:
                raise NotFound(f"call `{approval.id}` waits no more", hint="its client was told so")
            data = {"approval": approval.id, "tool": approval.tool}
            kind = f"client.{answer.value}"
            append(transaction, context="", kind=kind, subject=approval.actor, actor=actor, data=data)


def _forget_dead(transaction: Transaction) -> None:
    for row in transaction.rows(f"SELECT {_COLUMNS} FROM approvals"):
        approval = _approval_of(row)
        if not is_owner_alive(approval.owner):
            transaction.execute("DELETE FROM approvals WHERE id = ?", (approval.id,))


def _approval_of(row: tuple[Any, ...]) -> Approval:
    number, actor, owner, tool, words, answer, asked_at, expires_at = row
    return Approval(number, actor, owner, tool, words, Answer(answer), instant_of(asked_at), instant_of(expires_at))
