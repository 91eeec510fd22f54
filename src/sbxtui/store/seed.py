"""Adopting what `asb` left: its JSON file of names and its JSON file of infrastructure outputs.

Both are only ever read. Their exact shape is not published, so anything that looks like a name with a sandbox's id, or
like an output with a value, is taken, and what is not understood is told. A file is read once per context and change.
"""

from __future__ import annotations

import json
from dataclasses import field
from pathlib import Path
from typing import Any

from sbxtui.core.model import Context, ContextKind, ContextName, LaunchRequest, Phase, Registration, SandboxId
from sbxtui.core.names import generate_name
from sbxtui.core.paths import at_home
from sbxtui.core.text import counted, harmless_line
from sbxtui.core.values import dataclass
from sbxtui.store import events, rows, seed_shapes
from sbxtui.store.codec import instant_text
from sbxtui.store.db import Store, Transaction
from sbxtui.store.outputs import set_outputs

_MAX_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class SeedReport:
    """What was adopted: names, outputs, and lines to tell a person once."""

    names: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()


@dataclass(slots=True)
class _Gathering:
    names: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _SeedFile:
    path: Path
    mtime_ns: int
    size_bytes: int


def adopt_seed(store: Store, context: Context, *, state_file: Path, infra_state_file: Path, actor: str) -> SeedReport:
    """Take over names and outputs of `asb` into a context, if its files are new or changed since the last time.

    Args:
        store: The home's store.
        context: The AWS context they belong to; for a local one nothing is done.
        state_file: `asb`'s map of names; `~` is the person's home folder.
        infra_state_file: `asb infra`'s state.
        actor: Who does it, for the events.

    Raises:
        StoreError: The store cannot be written; nothing was adopted.
    """
    if context.kind is not ContextKind.AWS:
        return SeedReport()
    gathering = _Gathering()
    for path, adopt in ((state_file, _adopt_names), (infra_state_file, _adopt_outputs)):
        found = _look(at_home(path), gathering)
        if found is None or _was_read(store, found, context):
            continue
        document = _read(found, gathering)
        with store.transaction() as transaction:
            if document is not None:
                adopt(transaction, context, found.path, document, actor, gathering)
            _remember(transaction, found, context)
    return SeedReport(tuple(gathering.names), tuple(gathering.outputs), tuple(gathering.notices))


def _look(path: Path, gathering: _Gathering) -> _SeedFile | None:
    try:
        status = path.stat()
    except OSError:
        return None
    if status.st_size > _MAX_BYTES:
        gathering.notices.append(f"`{path}` is too large to be a state file of asb; it was not read")
        return None
    return _SeedFile(path, status.st_mtime_ns, status.st_size)


def _was_read(store: Store, found: _SeedFile, context: Context) -> bool:
    sql = "SELECT 1 FROM seed_files WHERE path = ? AND context = ? AND mtime_ns = ? AND size_bytes = ?"
    return bool(store.rows(sql, (str(found.path), context.name, found.mtime_ns, found.size_bytes)))


def _remember(transaction: Transaction, found: _SeedFile, context: Context) -> None:
    transaction.execute(
        "INSERT OR REPLACE INTO seed_files VALUES (?, ?, ?, ?, ?)",
        (str(found.path), context.name, found.mtime_ns, found.size_bytes, instant_text(transaction.now)),
    )


def _read(found: _SeedFile, gathering: _Gathering) -> Any:
    """The parsed file, or None with a notice."""
    try:
        return json.loads(found.path.read_bytes())
    except (OSError, ValueError, RecursionError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "it is no JSON"
        gathering.notices.append(f"`{found.path}` was not adopted: {reason}")
        return None


def _adopt_names(
    transaction: Transaction, context: Context, path: Path, document: Any, actor: str, gathering: _Gathering
) -> None:
    entries, skipped = seed_shapes.sandboxes(document)
    if skipped:
        skipped_words = counted(skipped, "entry", "entries")
        gathering.notices.append(f"{skipped_words} of `{path}` left out: no sandbox is named there")
    taken = rows.names(transaction, context.name)
    known: dict[str, str] = {row.id: row.name for row in rows.every(transaction, context.name)}
    for entry in entries:
        if entry.id in known:
            continue
        if elsewhere := _elsewhere(context, entry.region, entry.image_arn):
            gathering.notices.append(f"`{harmless_line(entry.name, limit=80)}` was not adopted: it is in {elsewhere}")
            continue
        name = _free_name(entry.name, taken)
        if name != entry.name:
            gathering.notices.append(f"`{harmless_line(entry.name, limit=80)}` of asb is `{name}` here")
        taken.add(name)
        known[entry.id] = name
        _insert(transaction, context, name, entry, actor)
        gathering.names.append(name)


def _insert(transaction: Transaction, context: Context, name: str, entry: seed_shapes.SeedSandbox, actor: str) -> None:
    registration = Registration(
        context=ContextName(context.name),
        name=name,
        id=SandboxId(entry.id),
        phase=Phase.TRACKED,
        request=LaunchRequest(image_arn=entry.image_arn, execution_role_arn=entry.execution_role_arn),
        client_token="",
        owner="",
        created_at=entry.created_at or transaction.now,
        endpoint=entry.endpoint,
        facts={"adopted_from": "asb"},
    )
    rows.insert(transaction, registration)
    events.append(
        transaction,
        context=context.name,
        kind="sandbox.adopted",
        subject=name,
        actor=actor,
        data={"id": entry.id, "from": "asb"},
    )


def _adopt_outputs(
    transaction: Transaction, context: Context, path: Path, document: Any, actor: str, gathering: _Gathering
) -> None:
    adopted: dict[str, str] = {}
    for name, values in seed_shapes.outputs(document).items():
        here = [value for value in values if not _elsewhere(context, "", value)]
        if len(here) == 1:
            adopted[name] = here[0]
        elif here:
            gathering.notices.append(f"`{path}` has {len(here)} values of `{name}`; none was adopted")
        else:
            place = _elsewhere(context, "", values[0])
            gathering.notices.append(f"`{name}` of `{path}` was not adopted: it is in {place}")
    if not adopted:
        return
    set_outputs(transaction, context.name, adopted, source=f"asb's {path}")
    data = {"names": sorted(adopted), "from": "asb"}
    events.append(transaction, context=context.name, kind="infra.outputs", subject=context.name, actor=actor, data=data)
    gathering.outputs += sorted(adopted)


def _elsewhere(context: Context, region: str, arn: str) -> str:
    """In words where a thing is, when that is not this context; empty if it is here or unknown."""
    parts = arn.split(":") if arn.startswith("arn:") else []
    arn_region, arn_account = (parts[3], parts[4]) if len(parts) > 5 else ("", "")
    for found in (region, arn_region):
        if found and context.region and found != context.region:
            return f"region {harmless_line(found, limit=40)}"
    if arn_account.isdigit() and context.account_id and arn_account != context.account_id:
        return f"account {arn_account}"
    return ""


def _free_name(wanted: str, taken: set[str]) -> str:
    name = seed_shapes.valid_name(wanted)
    if not name:
        return generate_name(taken, lambda words: words[0])
    number, candidate = 2, name
    while candidate in taken:
        candidate = f"{name[:58]}-{number}"
        number += 1
    return candidate
