"""Links: what shall be kept true between this machine and a sandbox, and who keeps it so.

A row is desired state. It belongs to the sandbox's id: the name only tells people which one that is, follows it when it
is renamed, and may be another sandbox's later. Its owner is the process that acts on it now; a dead owner's row is
anybody's.
"""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

from sbxtui.core.errors import Conflict, NotFound, StoreTooNew
from sbxtui.core.model import SandboxId
from sbxtui.core.values import dataclass
from sbxtui.store.codec import instant_of, instant_text, object_of, object_text
from sbxtui.store.db import Store, Transaction
from sbxtui.store.events import append
from sbxtui.store.leases import is_owner_alive

_COLUMNS = "context, kind, sandbox, sandbox_id, spec, wanted, is_detached, owner, status, made_at, seen_at"
_THE_LINK = "context = ? AND kind = ? AND sandbox_id = ?"


class Wanted(StrEnum):
    """What a person wants of a link. STOPPED keeps what is known of it.

    UNKNOWN is the word of a newer sbx: such a link is shown, and nothing acts upon it.
    """

    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"
    UNKNOWN = "unknown"

    @classmethod
    def _missing_(cls, value: object) -> Wanted:
        return cls.UNKNOWN


@dataclass(frozen=True, slots=True)
class Link:
    """One link.

    Attributes:
        kind: `sync`, or `forward:PORT` for a port of this machine.
        sandbox: The name of its sandbox.
        sandbox_id: Its sandbox; there is one link of a kind for each.
        spec: What it keeps true, in words of its kind.
        is_detached: The runner acts on it; else the process that made it.
        owner: The text of the identity of the process that acts on it; empty for nobody.
        status: What its owner last said of it, in words of its kind.
        seen_at: When it did.
    """

    context: str
    kind: str
    sandbox: str
    sandbox_id: SandboxId
    spec: Mapping[str, Any]
    wanted: Wanted
    is_detached: bool
    owner: str
    status: Mapping[str, Any]
    made_at: datetime
    seen_at: datetime

    @property
    def is_served(self) -> bool:
        """Whether a process that lives acts on it."""
        return is_owner_alive(self.owner)

    @property
    def is_wanted(self) -> bool:
        """Whether somebody shall act on it, if only to be ready for going on."""
        return self.wanted in (Wanted.RUNNING, Wanted.PAUSED)

    def known(self) -> Link:
        """The same link, which may be acted upon.

        Raises:
            StoreTooNew: What is wanted of it is a newer sbx's word.
        """
        if self.wanted is Wanted.UNKNOWN:
            raise self.too_new()
        return self

    def too_new(self) -> StoreTooNew:
        """The error for a link with a word that only a newer sbx knows."""
        return StoreTooNew(
            f"only a newer sbx knows what the {_word(self.kind)} of `{self.sandbox}` shall do",
            hint="upgrade this sbx; it was left as it is",
        )


class Links:
    """The links of a home."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def find(self, context: str, kind: str, sandbox_id: SandboxId) -> Link | None:
        """The link of a sandbox, or None."""
        sql = f"SELECT {_COLUMNS} FROM links WHERE {_THE_LINK}"
        rows = self._store.rows(sql, (context, kind, sandbox_id))
        return _link_of(rows[0]) if rows else None

    def of(self, context: str, sandbox_id: SandboxId) -> builtins.list[Link]:
        """Every link of a sandbox, by kind."""
        sql = f"SELECT {_COLUMNS} FROM links WHERE context = ? AND sandbox_id = ? ORDER BY kind"
        return [_link_of(row) for row in self._store.rows(sql, (context, sandbox_id))]

    def list(self, kind: str, context: str | None = None) -> list[Link]:
        """All links of a kind, those of its ports, too, by context and name; or those of one context."""
        kinds = [kind, f"{kind}:*"]
        where, parameters = ("", kinds) if context is None else (" AND context = ?", [*kinds, context])
        sql = f"SELECT {_COLUMNS} FROM links WHERE (kind = ? OR kind GLOB ?){where} ORDER BY context, sandbox, kind"
        return [_link_of(row) for row in self._store.rows(sql, parameters)]

    def take(
        self,
        *,
        context: str,
        kind: str,
        sandbox: str,
        sandbox_id: SandboxId,
        spec: Mapping[str, object],
        owner: str,
        actor: str,
        is_detached: bool = False,
    ) -> Link:
        """Make a link, or take one up whose owner is dead, and act on it from now on.

        Args:
            owner: Who acts on it; empty leaves it to the runner.

        Raises:
            Conflict: A living process acts on it; `details["owner"]` is its pid. Or there is no sandbox yet.
            StoreTooNew: A newer sbx keeps it.
        """
        if not sandbox_id:
            raise Conflict(f"`{sandbox}` is still being launched", hint="try again when it runs")
        with self._store.transaction() as transaction:
            found = _row(transaction, context, kind, sandbox_id)
            if found is not None and found.known().is_served and found.owner != owner:
                raise _busy(found)
            now = instant_text(transaction.now)
            # With it goes what is left of the link of another sandbox, which had this name before.
            transaction.execute(f"DELETE FROM links WHERE {_THE_LINK}", (context, kind, sandbox_id))
            transaction.execute(
                f"INSERT OR REPLACE INTO links ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    *(context, kind, sandbox, sandbox_id, object_text(spec), Wanted.RUNNING.value, is_detached, owner),
                    *("{}", instant_text(found.made_at) if found else now, now),
                ),
            )
            append(
                transaction, context=context, kind=f"{_word(kind)}.start", subject=sandbox, actor=actor, data={**spec}
            )
            return _required(transaction, context, kind, sandbox_id)

    def serve(self, link: Link, owner: str) -> bool:
        """Act on a link that nobody alive acts on; False when somebody does."""
        with self._store.transaction() as transaction:
            found = _row(transaction, link.context, link.kind, link.sandbox_id)
            if found is None or found.wanted is Wanted.UNKNOWN or (found.is_served and found.owner != owner):
                return False
            return _update(transaction, found, "owner = ?", owner) == 1

    def leave(self, link: Link, owner: str) -> None:
        """Stop acting on a link; it stays, with what was said of it."""
        with self._store.transaction() as transaction:
            found = _row(transaction, link.context, link.kind, link.sandbox_id)
            if found is not None and found.owner == owner:
                _update(transaction, found, "owner = ''")

    def want(self, link: Link, wanted: Wanted, *, actor: str) -> None:
        """Say what a person wants of a link; its owner hears the doorbell.

        Raises:
            StoreTooNew: A newer sbx keeps it.
        """
        with self._store.transaction() as transaction:
            found = _row(transaction, link.context, link.kind, link.sandbox_id)
            if found is not None and _update(transaction, found.known(), "wanted = ?", wanted.value):
                append(
                    transaction,
                    context=link.context,
                    kind=f"{_word(link.kind)}.{wanted.value}",
                    subject=link.sandbox,
                    actor=actor,
                    data=_port_of(link.kind),
                )

    def say(self, link: Link, status: Mapping[str, object]) -> None:
        """Write down how a link is."""
        with self._store.transaction() as transaction:
            _update(transaction, link, "status = ?, seen_at = ?", object_text(status), instant_text(transaction.now))

    def forget(self, link: Link, *, actor: str) -> None:
        """Remove a link.

        Raises:
            Conflict: A living process acts on it. StoreTooNew: A newer sbx keeps it.
        """
        with self._store.transaction() as transaction:
            found = _row(transaction, link.context, link.kind, link.sandbox_id)
            if found is None:
                return
            if found.known().is_served:
                raise _busy(found)
            transaction.execute(f"DELETE FROM links WHERE {_THE_LINK}", (link.context, link.kind, link.sandbox_id))
            append(
                transaction,
                context=link.context,
                kind=f"{_word(link.kind)}.stop",
                subject=found.sandbox,
                actor=actor,
                data=_port_of(link.kind),
            )


def follow_name(transaction: Transaction, context: str, sandbox_id: SandboxId, name: str) -> None:
    """The sandbox has another name now; whoever had that before is gone, and so are the links."""
    transaction.execute(
        "DELETE FROM links WHERE context = ? AND sandbox = ? AND sandbox_id <> ?", (context, name, sandbox_id)
    )
    transaction.execute(
        "UPDATE links SET sandbox = ? WHERE context = ? AND sandbox_id = ?", (name, context, sandbox_id)
    )


def end_of_sandbox(transaction: Transaction, context: str, sandbox_id: SandboxId) -> None:
    """The sandbox is gone, and its links are; who acts on one notices."""
    transaction.execute("DELETE FROM links WHERE context = ? AND sandbox_id = ?", (context, sandbox_id))


def _word(kind: str) -> str:
    return kind.partition(":")[0]


def _port_of(kind: str) -> dict[str, object]:
    port = kind.partition(":")[2]
    return {"local_port": int(port)} if port else {}


def _busy(link: Link) -> Conflict:
    pid = link.owner.partition(":")[0]
    word, _, port = link.kind.partition(":")
    look = "sbx forward ls" if port else f"sbx {word} status {link.sandbox}"
    return Conflict(
        f"the {word} of `{link.sandbox}`{f' at port {port}' if port else ''} is being run by process {pid} already",
        hint=f"`{look}` tells more, `sbx {word} stop {link.sandbox}{f' {port}' if port else ''}` ends it",
        details={"owner": pid},
    )


def _update(transaction: Transaction, link: Link, change: str, *values: object) -> int:
    return transaction.execute(
        f"UPDATE links SET {change} WHERE {_THE_LINK}", (*values, link.context, link.kind, link.sandbox_id)
    )


def _row(transaction: Transaction, context: str, kind: str, sandbox_id: SandboxId) -> Link | None:
    found = transaction.row(f"SELECT {_COLUMNS} FROM links WHERE {_THE_LINK}", (context, kind, sandbox_id))
    return None if found is None else _link_of(found)


def _required(transaction: Transaction, context: str, kind: str, sandbox_id: SandboxId) -> Link:
    link = _row(transaction, context, kind, sandbox_id)
    if link is None:
        raise NotFound(f"`{sandbox_id}` has no {kind}")
    return link


def _link_of(row: tuple[Any, ...]) -> Link:
    context, kind, sandbox, sandbox_id, spec, wanted, is_detached, owner, status, made_at, seen_at = row
    return Link(
        context=context,
        kind=kind,
        sandbox=sandbox,
        sandbox_id=SandboxId(sandbox_id),
        spec=object_of(spec),
        wanted=Wanted(wanted),
        is_detached=bool(is_detached),
        owner=owner,
        status=object_of(status),
        made_at=instant_of(made_at),
        seen_at=instant_of(seen_at),
    )
