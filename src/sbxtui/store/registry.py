"""Names and the sandboxes behind them. A name is taken from before the launch until it is removed, whatever crashes."""

from __future__ import annotations

import builtins
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace

from sbxtui.core.errors import Conflict, NameTaken, SandboxNotFound
from sbxtui.core.model import LaunchRequest, Phase, Registration, SandboxId, SandboxRecord
from sbxtui.core.names import check_name, generate_name
from sbxtui.store import events, links, rows
from sbxtui.store.codec import object_text
from sbxtui.store.db import Store, Transaction
from sbxtui.store.leases import is_owner_alive


class Registry:
    """The sandboxes this home has names for, in all contexts."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def reserve(
        self,
        *,
        context: str,
        name: str | None,
        request: LaunchRequest,
        client_token: str,
        owner: str,
        labels: Mapping[str, str] | None = None,
        actor: str,
        facts: Mapping[str, object] | None = None,
    ) -> Registration:
        """Take a name before anything is launched, with all a replay of the launch needs; durable on return.

        Args:
            context: Where the sandbox shall live.
            name: Its name; None makes one up.
            request: The exact launch request.
            client_token: Sent with it, so that a replay gives the same sandbox.
            owner: The launching process, as the text of its `ProcessIdentity`.
            labels: What people filter by.
            actor: Who does it, for the event.
            facts: JSON-safe facts kept with the row; never in events.

        Returns:
            The row, LAUNCHING, without an id.

        Raises:
            UsageError: Nothing can have that name.
            NameTaken: Something of this context has it.
        """
        if name is not None:
            check_name(name)
        with self._store.transaction() as transaction:
            taken = rows.names(transaction, context)
            if name is None:
                name = generate_name(taken, secrets.choice)
            elif name in taken:
                raise _name_taken(context, name)
            registration = Registration(
                context=rows.context_name(context),
                name=name,
                id=SandboxId(""),
                phase=Phase.LAUNCHING,
                request=request,
                client_token=client_token,
                owner=owner,
                created_at=transaction.now,
                labels=dict(labels or {}),
                facts=dict(facts or {}),
            )
            rows.insert(transaction, registration)
            _log(transaction, registration, "sandbox.reserved", actor, {"image": request.image_arn})
        return registration

    def bind(
        self,
        context: str,
        name: str,
        record: SandboxRecord,
        *,
        actor: str,
        facts: Mapping[str, object] | None = None,
        client_token: str = "",
    ) -> Registration:
        """Say which sandbox a reserved name got; binding the same one again changes nothing.

        Args:
            context: Its context.
            name: The reserved name.
            record: What the control plane answered.
            actor: Who does it.
            facts: Merged into the row's facts.
            client_token: The token of the launch that was answered. When given, a name that was removed and reserved
                anew meanwhile is left alone.

        Raises:
            SandboxNotFound: The name was removed meanwhile: nobody tracks the sandbox now.
            Conflict: The name or the sandbox belongs to another launch.
        """
        with self._store.transaction() as transaction:
            row = rows.row(transaction, context, name)
            if row is None or (client_token and row.client_token != client_token):
                raise SandboxNotFound(
                    f"`{name}` was removed while sandbox `{record.id}` was being launched",
                    hint=f"`sbx adopt {record.id}` tracks it, `sbx rm {record.id}` ends it",
                    details={"id": record.id},
                )
            if rows.known(row).id and row.id != record.id:
                raise Conflict(f"`{name}` already names sandbox `{row.id}`, not `{record.id}`")
            _check_untracked(transaction, context, record.id, but=name)
            bound = replace(
                row,
                id=record.id,
                phase=Phase.TRACKED,
                endpoint=record.endpoint,
                facts={**row.facts, **(facts or {})},
            )
            if bound != row:
                _update(transaction, bound)
                _log(transaction, bound, "sandbox.tracked", actor, {"id": record.id})
        return bound

    def adopt(
        self,
        context: str,
        name: str | None,
        record: SandboxRecord,
        *,
        request: LaunchRequest | None = None,
        owner: str = "",
        labels: Mapping[str, str] | None = None,
        actor: str,
        facts: Mapping[str, object] | None = None,
    ) -> Registration:
        """Give a name to a sandbox that exists already; None makes one up.

        Raises:
            UsageError: Nothing can have that name.
            NameTaken: Something of this context has it.
            Conflict: The sandbox has a name already.
        """
        if name is not None:
            check_name(name)
        with self._store.transaction() as transaction:
            _check_untracked(transaction, context, record.id)
            taken = rows.names(transaction, context)
            if name is None:
                name = generate_name(taken, secrets.choice)
            elif name in taken:
                raise _name_taken(context, name)
            registration = Registration(
                context=rows.context_name(context),
                name=name,
                id=record.id,
                phase=Phase.TRACKED,
                request=request or _request_of(record),
                client_token="",
                owner=owner,
                created_at=record.started_at,
                endpoint=record.endpoint,
                labels=dict(labels or {}),
                facts=dict(facts or {}),
            )
            rows.insert(transaction, registration)
            _log(transaction, registration, "sandbox.adopted", actor, {"id": record.id})
        return registration

    def get(self, context: str, name: str) -> Registration:
        """The row of a name.

        Raises:
            SandboxNotFound: No such name; the hint shows near ones.
        """
        with self._store.snapshot() as transaction:
            return rows.required(transaction, context, name)

    def list(self, context: str | None = None) -> list[Registration]:
        """All rows of one context, or of all, oldest first."""
        with self._store.snapshot() as transaction:
            return rows.every(transaction, context)

    def find(self, context: str, reference: str) -> Registration:
        """The row that a person means: by name, by id, or by a prefix of either that fits one sandbox only.

        Raises:
            SandboxNotFound: None fits; the hint shows near names.
            AmbiguousReference: Several fit; `details` lists their names.
        """
        with self._store.snapshot() as transaction:
            return rows.resolve(context, rows.every(transaction, context), reference)

    def rename(self, context: str, old: str, new: str, *, actor: str) -> Registration:
        """Give a sandbox another name; what refers to it by id goes on.

        Raises:
            UsageError: Nothing can have the new name.
            SandboxNotFound: There is no `old`.
            NameTaken: `new` is taken.
            Conflict: It is still being launched, and its name is part of the launch.
        """
        check_name(new)
        with self._store.transaction() as transaction:
            row = rows.required(transaction, context, old)
            if row.phase is Phase.LAUNCHING:
                raise Conflict(f"`{old}` is still being launched", hint="rename it when it runs")
            if new == old:
                return row
            if rows.row(transaction, context, new) is not None:
                raise _name_taken(context, new)
            transaction.execute("UPDATE registrations SET name = ? WHERE context = ? AND name = ?", (new, context, old))
            links.follow_name(transaction, context, row.id, new)
            renamed = replace(row, name=new)
            _log(transaction, renamed, "sandbox.renamed", actor, {"from": old, "id": row.id})
        return renamed

    def remove(self, context: str, name: str, *, actor: str, reason: str = "") -> Registration:
        """Forget a name, with the endpoint tokens of its sandbox; says nothing to the control plane.

        Returns:
            The row as it was.

        Raises:
            SandboxNotFound: There is no such name.
        """
        with self._store.transaction() as transaction:
            row = rows.required(transaction, context, name)
            _delete(transaction, row, actor, reason)
        return row

    def remove_row(self, row: Registration, *, actor: str, reason: str = "", took_s: float | None = None) -> None:
        """Forget exactly this launch, ended in `took_s`; a sandbox that has its name meanwhile stays."""
        with self._store.transaction() as transaction:
            found = rows.row(transaction, row.context, row.name)
            if found is None or (found.client_token, found.created_at) != (row.client_token, row.created_at):
                return
            _delete(transaction, rows.known(found), actor, reason, took_s)

    def set_labels(self, context: str, name: str, labels: Mapping[str, str], *, actor: str) -> Registration:
        """Replace all labels. See `change_labels` for changing some.

        Raises:
            SandboxNotFound: There is no such name.
        """
        return self._change(context, name, "labels", dict(labels), actor, is_merge=False)

    def change_labels(self, context: str, name: str, changes: Mapping[str, str | None], *, actor: str) -> Registration:
        """Set some labels and remove those given as None, leaving the others as they are now.

        Raises:
            SandboxNotFound: There is no such name.
        """
        return self._change(context, name, "labels", dict(changes), actor, is_merge=True)

    def set_facts(self, context: str, name: str, facts: Mapping[str, object], *, actor: str = "") -> Registration:
        """Replace all facts. See `change_facts` for changing some.

        Raises:
            SandboxNotFound: There is no such name.
        """
        return self._change(context, name, "facts", dict(facts), actor, is_merge=False)

    def change_facts(
        self, context: str, name: str, changes: Mapping[str, object | None], *, actor: str = ""
    ) -> Registration:
        """Set some facts and remove those given as None, leaving the others as they are now.

        Raises:
            SandboxNotFound: There is no such name.
        """
        return self._change(context, name, "facts", dict(changes), actor, is_merge=True)

    def note(
        self,
        row: Registration,
        facts: Mapping[str, object],
        *,
        kind: str,
        notes: Sequence[Mapping[str, object]],
        actor: str,
    ) -> Registration:
        """Write down what was seen of a sandbox, with one event for each of `notes`.

        However many processes see it, it is written down once: whoever comes late changes nothing.

        Args:
            row: As it was before that was seen.
            facts: What its facts become.
            kind: Of the events.
            notes: JSON-safe facts of each event.
            actor: Who did what was seen.

        Returns:
            The row as it is now; as it was on a full disk.
        """
        with self._store.best_effort("an event"), self._store.transaction() as transaction:
            found = rows.row(transaction, row.context, row.name)
            if found is None or found.id != row.id:
                return row
            if found.phase is Phase.UNKNOWN or any(found.facts.get(key) != row.facts.get(key) for key in facts):
                return found
            noted = replace(found, facts={**found.facts, **facts})
            _update(transaction, noted)
            for data in notes:
                _log(transaction, noted, kind, actor, {"id": row.id, **data})
            return noted
        return row

    def dead_launches(self, context: str | None = None) -> builtins.list[Registration]:
        """Rows still LAUNCHING whose launching process no longer runs; `take_over` one before replaying it."""
        return [row for row in self.list(context) if row.phase is Phase.LAUNCHING and not is_owner_alive(row.owner)]

    def take_over(self, launch: Registration, owner: str) -> Registration | None:
        """Become the owner of a dead launch; None when somebody else was faster, so that nobody replays it twice.

        Args:
            launch: As `dead_launches` gave it.
            owner: The recovering process, as the text of its `ProcessIdentity`.
        """
        with self._store.transaction() as transaction:
            changed = transaction.execute(
                "UPDATE registrations SET owner = ?"
                " WHERE context = ? AND name = ? AND client_token = ? AND owner = ? AND phase = ?",
                (owner, launch.context, launch.name, launch.client_token, launch.owner, Phase.LAUNCHING.value),
            )
        return replace(launch, owner=owner) if changed == 1 else None

    def _change(
        self, context: str, name: str, column: str, values: dict[str, object], actor: str, *, is_merge: bool
    ) -> Registration:
        with self._store.transaction() as transaction:
            row = rows.required(transaction, context, name)
            before: Mapping[str, object] = row.labels if column == "labels" else row.facts
            merged = {**before, **values} if is_merge else values
            after = {key: value for key, value in merged.items() if value is not None or not is_merge}
            if after == before:
                return row
            transaction.execute(
                f"UPDATE registrations SET {column} = ? WHERE context = ? AND name = ?",
                (object_text(after, column), context, name),
            )
            # Values of facts may be private (the launch environment), so events carry their keys only.
            keys = sorted(key for key in {*before, *after} if before.get(key) != after.get(key))
            _log(transaction, row, f"sandbox.{column}", actor, {"id": row.id, "changed": keys})
            return rows.required(transaction, context, name)


def _update(transaction: Transaction, row: Registration) -> None:
    transaction.execute(
        "UPDATE registrations SET sandbox_id = ?, phase = ?, endpoint = ?, facts = ? WHERE context = ? AND name = ?",
        (row.id, row.phase.value, row.endpoint, object_text(row.facts), row.context, row.name),
    )


def _delete(transaction: Transaction, row: Registration, actor: str, reason: str, took_s: float | None = None) -> None:
    transaction.execute("DELETE FROM registrations WHERE context = ? AND name = ?", (row.context, row.name))
    measured = {} if took_s is None else {"took_s": took_s}
    if row.id:
        transaction.execute("DELETE FROM tokens WHERE context = ? AND sandbox_id = ?", (row.context, row.id))
        links.end_of_sandbox(transaction, row.context, row.id)
    _log(transaction, row, "sandbox.removed", actor, {"id": row.id, "reason": reason, **measured})


def _log(transaction: Transaction, row: Registration, kind: str, actor: str, data: Mapping[str, object]) -> None:
    events.append(transaction, context=row.context, kind=kind, subject=row.name, actor=actor, data=data)


def _check_untracked(transaction: Transaction, context: str, sandbox_id: str, *, but: str = "") -> None:
    found = transaction.row(
        "SELECT name FROM registrations WHERE context = ? AND sandbox_id = ? AND name <> ?", (context, sandbox_id, but)
    )
    if found is not None:
        raise Conflict(
            f"sandbox `{sandbox_id}` is already named `{found[0]}`",
            hint=f"`sbx rename {found[0]} NEW` gives it another name",
            details={"name": found[0]},
        )


def _name_taken(context: str, name: str) -> NameTaken:
    return NameTaken(
        f"the name `{name}` is taken in context `{context}`",
        hint=f"choose another, remove it with `sbx rm {name}`, or create with --replace",
    )


def _request_of(record: SandboxRecord) -> LaunchRequest:
    return LaunchRequest(
        image_arn=record.image_arn,
        image_version=record.image_version,
        execution_role_arn=record.execution_role_arn,
        idle=record.idle,
        max_duration_s=record.max_duration_s,
        ingress_connectors=record.ingress_connectors,
        egress_connectors=record.egress_connectors,
    )
