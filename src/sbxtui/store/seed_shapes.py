"""Recognising sandboxes and outputs in the JSON files of `asb`, whatever shape they have. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from sbxtui.core.errors import UsageError
from sbxtui.core.names import MAX_NAME_LENGTH, check_name
from sbxtui.core.text import harmless_line
from sbxtui.core.values import dataclass
from sbxtui.store.outputs import OUTPUT_NAMES

_ID = re.compile(r"microvm-[0-9A-Za-z-]{4,120}")
_PLAIN_ID = re.compile(r"[0-9A-Za-z][0-9A-Za-z-]{3,127}")
_ID_KEYS = ("microvm_id", "microvmid", "microvm_identifier", "microvmidentifier", "sandbox_id", "vm_id", "id")
_CONTAINER_KEYS = ("sandboxes", "microvms", "vms", "names", "items", "state")
_ALIASES = {"egress_connector_arn": "egress_network_connector_arn", "egress_connector": "egress_network_connector_arn"}
_MAX_DEPTH = 12


@dataclass(frozen=True, slots=True)
class SeedSandbox:
    """A sandbox as `asb` knew it; what it did not say is empty."""

    name: str
    id: str
    endpoint: str = ""
    image_arn: str = ""
    execution_role_arn: str = ""
    region: str = ""
    created_at: datetime | None = None


def sandboxes(document: Any) -> tuple[list[SeedSandbox], int]:
    """All named sandboxes of a state file, and how many of its entries are none."""
    found: list[SeedSandbox] = []
    skipped = 0
    for name, value in _named_values(document, 0):
        sandbox_id = _id_of(value)
        if sandbox_id and name:
            found.append(_sandbox(name, sandbox_id, value if isinstance(value, Mapping) else {}))
        elif isinstance(value, Mapping):
            skipped += 1
    return found, skipped


def outputs(document: Any) -> dict[str, list[str]]:
    """Every output by name with its distinct values, in the order found; several stacks may give several."""
    found: dict[str, list[str]] = {}
    for key, value in _leaves(document, 0):
        name = _ALIASES.get(key, key)
        if name in OUTPUT_NAMES and value and value not in found.setdefault(name, []):
            found[name].append(value)
    return {name: values for name, values in found.items() if values}


def valid_name(wanted: str) -> str:
    """The nearest valid name, empty if nothing is left of it."""
    name = re.sub(r"[^a-z0-9-]+", "-", wanted.lower()).strip("-")[:MAX_NAME_LENGTH]
    try:
        return check_name(name)
    except UsageError:
        # Nothing left, or a verb of sbx.
        return f"{name}-1" if name else ""


def _named_values(document: Any, depth: int) -> Iterator[tuple[str, Any]]:
    if depth > _MAX_DEPTH:
        return
    if isinstance(document, list):
        for item in document:
            if isinstance(item, Mapping):
                yield str(item.get("name") or ""), item
        return
    if not isinstance(document, Mapping):
        return
    containers = [document[key] for key in _CONTAINER_KEYS if isinstance(document.get(key), dict | list)]
    # `{"sandboxes": {…}}` is a container, `{"state": {"id": "microvm-…"}}` a sandbox called "state".
    containers = [one for one in containers if not (isinstance(one, Mapping) and _stated_id(one))]
    if containers:
        for container in containers:
            yield from _named_values(container, depth + 1)
        return
    yield from ((str(name), value) for name, value in document.items())


def _id_of(value: Any) -> str:
    if isinstance(value, str):
        return value if _ID.fullmatch(value) else ""
    if not isinstance(value, Mapping):
        return ""
    return _stated_id(value) or next((one for one in value.values() if isinstance(one, str) and _ID.fullmatch(one)), "")


def _stated_id(facts: Mapping[str, Any]) -> str:
    """The id under a key that says so."""
    lowered = {str(key).lower(): one for key, one in facts.items()}
    for key in _ID_KEYS:
        one = lowered.get(key)
        if isinstance(one, str) and _PLAIN_ID.fullmatch(one):
            return one
    return ""


def _sandbox(name: str, sandbox_id: str, facts: Mapping[str, Any]) -> SeedSandbox:
    return SeedSandbox(
        name=name,
        id=sandbox_id,
        endpoint=_host(_first(facts, "endpoint", "endpoint_url", "url", "host")),
        image_arn=_first(facts, "image_arn", "imageArn", "image", "image_identifier"),
        execution_role_arn=_first(facts, "execution_role_arn", "executionRoleArn", "role"),
        region=_first(facts, "region"),
        created_at=_instant(facts),
    )


def _first(facts: Mapping[str, Any], *keys: str) -> str:
    for key in keys:
        value = facts.get(key)
        if isinstance(value, str) and value:
            return harmless_line(value, limit=2_048)
    return ""


def _host(endpoint: str) -> str:
    return endpoint.removeprefix("https://").removeprefix("http://").rstrip("/")


def _instant(facts: Mapping[str, Any]) -> datetime | None:
    for key in ("created_at", "createdAt", "started_at", "startedAt", "created"):
        value = facts.get(key)
        try:
            if isinstance(value, str):
                instant = datetime.fromisoformat(value)
                return instant if instant.tzinfo else instant.replace(tzinfo=UTC)
            if isinstance(value, int | float) and not isinstance(value, bool):
                return datetime.fromtimestamp(value, UTC)
        except (ValueError, OverflowError, OSError):
            continue
    return None


def _leaves(document: Any, depth: int) -> Iterator[tuple[str, str]]:
    """Texts with the key they stand under; `{"image_arn": {"value": "…"}}` counts for `image_arn`."""
    if depth > _MAX_DEPTH:
        return
    if isinstance(document, list):
        for item in document:
            yield from _leaves(item, depth + 1)
    if not isinstance(document, Mapping):
        return
    for key, value in document.items():
        if isinstance(value, str):
            yield str(key), harmless_line(value, limit=2_048)
            continue
        if isinstance(value, Mapping) and isinstance(value.get("value"), str):
            yield str(key), harmless_line(value["value"], limit=2_048)
        yield from _leaves(value, depth + 1)
