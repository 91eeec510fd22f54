"""Rows of the registry: reading, adding, and finding the one a person means."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

from sbxtui.core.errors import AmbiguousReference, SandboxNotFound, StoreTooNew
from sbxtui.core.model import ContextName, Phase, Registration, SandboxId
from sbxtui.core.text import harmless_line
from sbxtui.store.codec import instant_of, instant_text, object_of, object_text, request_of, request_text
from sbxtui.store.db import Transaction

COLUMNS = "context, name, sandbox_id, phase, request, client_token, owner, created_at, endpoint, labels, facts"
_SHOWN = 5


def context_name(name: str) -> ContextName:
    """A plain name as the typed one rows carry."""
    return ContextName(name)


def names(transaction: Transaction, context: str) -> set[str]:
    """All names taken in a context."""
    return {row[0] for row in transaction.rows("SELECT name FROM registrations WHERE context = ?", (context,))}


def row(transaction: Transaction, context: str, name: str) -> Registration | None:
    """The row of a name, or None."""
    sql = f"SELECT {COLUMNS} FROM registrations WHERE context = ? AND name = ?"
    found = transaction.row(sql, (context, name))
    return None if found is None else _registration_of(found)


def known(row: Registration) -> Registration:
    """The same row, which may be acted upon.

    Raises:
        StoreTooNew: Its phase is a newer sbx's.
    """
    if row.phase is Phase.UNKNOWN:
        raise StoreTooNew(
            f"`{row.name}` is in a phase that only a newer sbx knows", hint="upgrade this sbx; it was left as it is"
        )
    return row


def required(transaction: Transaction, context: str, name: str) -> Registration:
    """The row of a name, which may be acted upon.

    Raises:
        SandboxNotFound: No such name; the hint shows near ones.
        StoreTooNew: Its phase is a newer sbx's.
    """
    found = row(transaction, context, name)
    if found is None:
        raise not_found(context, name, sorted(names(transaction, context)))
    return known(found)


def every(transaction: Transaction, context: str | None) -> list[Registration]:
    """All rows of one context, or of all, oldest first."""
    where, parameters = ("", ()) if context is None else (" WHERE context = ?", (context,))
    sql = f"SELECT {COLUMNS} FROM registrations{where} ORDER BY created_at, context, name"
    return [_registration_of(found) for found in transaction.rows(sql, parameters)]


def insert(transaction: Transaction, registration: Registration) -> None:
    """Add a row whose name and id are known to be free."""
    row = registration
    transaction.execute(
        f"INSERT INTO registrations ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            *(row.context, row.name, row.id, row.phase.value, request_text(row.request), row.client_token, row.owner),
            *(instant_text(row.created_at), row.endpoint, object_text(row.labels, "labels"), object_text(row.facts)),
        ),
    )


def resolve(context: str, candidates: Sequence[Registration], reference: str) -> Registration:
    """The candidate that `reference` means: a name, an id, or a prefix of either that fits one only.

    A whole name counts before a whole id, and both before prefixes.

    Raises:
        SandboxNotFound: None fits.
        AmbiguousReference: Several fit.
        StoreTooNew: Its phase is a newer sbx's.
    """
    for candidate in candidates:
        if reference == candidate.name:
            return known(candidate)
    for candidate in candidates:
        if reference and reference == candidate.id:
            return known(candidate)
    fitting = [one for one in candidates if reference and _has_prefix(one, reference)]
    if len(fitting) == 1:
        return known(fitting[0])
    if not fitting:
        raise not_found(context, reference, [one.name for one in candidates])
    fitting_names = [one.name for one in fitting]
    shown = ", ".join(f"`{name}`" for name in fitting_names[:_SHOWN])
    more = f" and {len(fitting) - _SHOWN} more" if len(fitting) > _SHOWN else ""
    raise AmbiguousReference(
        f"`{harmless_line(reference, limit=64)}` fits {len(fitting)} sandboxes: {shown}{more}",
        hint="write more of the name or id",
        details={"names": fitting_names},
    )


def not_found(context: str, reference: str, known: Sequence[str]) -> SandboxNotFound:
    """The error for a reference nothing fits, with near names if there are any."""
    near = difflib.get_close_matches(reference, known, n=3)
    hint = f"did you mean {' or '.join(f'`{name}`' for name in near)}?" if near else "`sbx ls` lists them"
    return SandboxNotFound(
        f"no sandbox `{harmless_line(reference, limit=64)}` in context `{context}`", hint=hint, details={"near": near}
    )


def _has_prefix(candidate: Registration, reference: str) -> bool:
    return candidate.name.startswith(reference) or candidate.id.startswith(reference)


def _registration_of(found: tuple[Any, ...]) -> Registration:
    context, name, sandbox_id, phase, request, client_token, owner, created_at, endpoint, labels, facts = found
    return Registration(
        context=ContextName(context),
        name=name,
        id=SandboxId(sandbox_id),
        phase=Phase(phase),
        request=request_of(request),
        client_token=client_token,
        owner=owner,
        created_at=instant_of(created_at),
        endpoint=endpoint,
        labels=object_of(labels),
        facts=object_of(facts),
    )
