"""Control planes by name. `local`, the local cloud of this home, always exists."""

from __future__ import annotations

import difflib
import logging
import re
from dataclasses import replace
from typing import Any

from sbxtui.core.errors import Conflict, NameTaken, NotFound, StoreTooNew, UsageError
from sbxtui.core.model import Context, ContextKind, ContextName
from sbxtui.core.text import counted, harmless_line
from sbxtui.store import events
from sbxtui.store.codec import instant_text
from sbxtui.store.db import Store, Transaction

log = logging.getLogger(__name__)

LOCAL = Context(name=ContextName("local"), kind=ContextKind.LOCAL)

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_COLUMNS = "name, kind, region, profile, account_id, endpoint_url"


class Contexts:
    """The contexts of a home, and which of them is in use."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def list(self) -> list[Context]:
        """All contexts: `local` first, then by name. Left out is what only a newer sbx can use."""
        rows = self._store.rows(f"SELECT {_COLUMNS} FROM contexts ORDER BY name")
        for name, kind, *_ in (row for row in rows if not _is_known(row)):
            log.error("context `%s` is left out: only a newer sbx knows the kind `%s`", name, harmless_line(kind))
        return [LOCAL, *(_context_of(row) for row in rows if _is_known(row))]

    def get(self, name: str) -> Context:
        """One context.

        Raises:
            NotFound: There is none of that name.
            StoreTooNew: Only a newer sbx can use it.
        """
        if name == LOCAL.name:
            return LOCAL
        rows = self._store.rows(f"SELECT {_COLUMNS} FROM contexts WHERE name = ?", (name,))
        if not rows:
            raise _no_context(name, [context.name for context in self.list()])
        if not _is_known(rows[0]):
            raise StoreTooNew(
                f"context `{name}` is of a kind that only a newer sbx knows",
                hint="upgrade this sbx, or name another with --context; it was left as it is",
            )
        return _context_of(rows[0])

    def current(self) -> Context:
        """The context in use: the one `use` chose, else `local`."""
        rows = self._store.rows("SELECT value FROM meta WHERE key = 'current_context'")
        return self.get(rows[0][0]) if rows else LOCAL

    def add(self, context: Context, *, actor: str = "") -> Context:
        """Remember a context.

        Raises:
            UsageError: Its name is no word of `a-z 0-9 . _ -`.
            NameTaken: There is one of that name.
        """
        self.check_free(context.name)
        with self._store.transaction() as transaction:
            if _exists(transaction, context.name):
                raise _taken(context.name)
            transaction.execute(
                f"INSERT INTO contexts ({_COLUMNS}, added_at) VALUES (?, ?, ?, ?, ?, ?, ?)",
                (
                    *(context.name, context.kind.value, context.region, context.profile),
                    *(context.account_id, context.endpoint_url, instant_text(transaction.now)),
                ),
            )
            events.append(transaction, context=context.name, kind="context.added", subject=context.name, actor=actor)
        return context

    def check_free(self, name: str) -> None:
        """Whether `add` would take a name: asked before a person is asked for the rest.

        Raises:
            UsageError: It is no word of `a-z 0-9 . _ -`.
            NameTaken: There is a context of that name.
        """
        if not _NAME.fullmatch(name):
            hint = "use 1 to 63 of a-z, 0-9, `.`, `_` and `-`, starting with a letter or digit"
            raise UsageError(f"`{harmless_line(name, limit=64)}` cannot name a context", hint=hint)
        if name == LOCAL.name or self._store.rows("SELECT 1 FROM contexts WHERE name = ?", (name,)):
            raise _taken(name)

    def use(self, name: str, *, actor: str = "") -> Context:
        """Make a context the one in use.

        Raises:
            NotFound: There is none of that name.
        """
        context = self.get(name)
        with self._store.transaction() as transaction:
            transaction.execute("INSERT OR REPLACE INTO meta VALUES ('current_context', ?)", (name,))
            events.append(transaction, context=name, kind="context.used", subject=name, actor=actor)
        return context

    def set_account(self, name: str, account_id: str) -> Context:
        """Bind a context to the account its credentials belonged to when they were first checked.

        Raises:
            Conflict: It is bound to another account.
            NotFound: There is no such context; `local` is bound to nothing.
        """
        context = self.get(name)
        if context.name == LOCAL.name:
            raise NotFound("context `local` has no account to record")
        changed = 1
        with self._store.best_effort("the account of a context"), self._store.transaction() as transaction:
            changed = transaction.execute(
                "UPDATE contexts SET account_id = ? WHERE name = ? AND account_id IN ('', ?)",
                (account_id, name, account_id),
            )
        if changed == 0:
            hint = "make a context of its own for that account with `sbx context add`"
            raise Conflict(f"context `{name}` belongs to account {self.get(name).account_id}", hint=hint)
        return replace(context, account_id=account_id)

    def remove(self, name: str, *, actor: str = "") -> None:
        """Forget a context that has no sandboxes; if it was in use, `local` is now.

        Raises:
            NotFound: There is none of that name.
            Conflict: It is `local`, or names still point to sandboxes of it.
        """
        if name == LOCAL.name:
            raise Conflict("context `local` is built in", hint="`sbx local reset` empties it")
        self.get(name)
        with self._store.transaction() as transaction:
            tracked = transaction.rows("SELECT name FROM registrations WHERE context = ? ORDER BY name", (name,))
            if tracked:
                names = [row[0] for row in tracked]
                shown = ", ".join(f"`{one}`" for one in names[:5]) + (" …" if len(names) > 5 else "")
                raise Conflict(
                    f"context `{name}` still has {counted(len(names), 'sandbox', 'sandboxes')}: {shown}",
                    hint=f"remove them first: `sbx --context {name} rm --all`",
                    details={"sandboxes": names},
                )
            for sql in (
                "DELETE FROM tokens WHERE context = ?",
                "DELETE FROM outputs WHERE context = ?",
                "DELETE FROM seed_files WHERE context = ?",
                "DELETE FROM meta WHERE key = 'current_context' AND value = ?",
                "DELETE FROM contexts WHERE name = ?",
            ):
                transaction.execute(sql, (name,))
            events.append(transaction, context=name, kind="context.removed", subject=name, actor=actor)


def _taken(name: str) -> NameTaken:
    return NameTaken(f"there is a context `{name}` already", hint="`sbx context ls` lists them")


def _exists(transaction: Transaction, name: str) -> bool:
    return transaction.row("SELECT 1 FROM contexts WHERE name = ?", (name,)) is not None


def _no_context(name: str, known: list[ContextName]) -> NotFound:
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean `{near[0]}`?" if near else "`sbx context ls` lists them, `sbx context add` makes one"
    return NotFound(f"there is no context `{harmless_line(name, limit=64)}`", hint=hint)


def _is_known(row: tuple[Any, ...]) -> bool:
    return row[1] in list(ContextKind)


def _context_of(row: tuple[Any, ...]) -> Context:
    name, kind, region, profile, account_id, endpoint_url = row
    return Context(ContextName(name), ContextKind(kind), region, profile, account_id, endpoint_url)
