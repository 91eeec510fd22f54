"""Values as the small texts the store keeps: JSON objects and instants that sort as text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from sbxtui.core.errors import UsageError
from sbxtui.core.model import IdlePolicy, LaunchRequest

# Small rows only: bulk lives in files of its own.
MAX_TEXT_BYTES = 64 * 1024


def utc_now() -> datetime:
    """The present as an aware instant."""
    return datetime.now(UTC)


def instant_text(instant: datetime) -> str:
    """An aware instant as text of constant width, so that texts sort like instants."""
    return instant.astimezone(UTC).isoformat(timespec="microseconds")


def instant_of(text: str) -> datetime:
    """Undo `instant_text`."""
    return datetime.fromisoformat(text)


def object_text(value: Mapping[str, object], what: str = "values") -> str:
    """A JSON-safe mapping as text.

    Args:
        value: The mapping.
        what: What people call its values, in the plural.

    Raises:
        UsageError: It is over 64 KiB.
        ValueError: It is no JSON.
    """
    try:
        text = json.dumps(dict(value), separators=(",", ":"), allow_nan=False)
    except TypeError as exc:
        raise ValueError(f"only JSON can be stored: {exc}") from exc
    if len(text) > MAX_TEXT_BYTES:
        raise UsageError(f"the {what} have {len(text)} bytes in sum, more than {MAX_TEXT_BYTES}", hint="use fewer")
    return text


def object_of(text: str) -> dict[str, Any]:
    """Undo `object_text`; anything but an object reads as empty."""
    value = json.loads(text)
    return value if isinstance(value, dict) else {}


def request_text(request: LaunchRequest) -> str:
    """A launch request as text, complete: it is replayed from here after a crash."""
    return object_text(asdict(request))


def request_of(text: str) -> LaunchRequest:
    """Undo `request_text`; fields a newer sbx added are left out, they cannot be replayed by this one."""
    raw = object_of(text)
    idle = raw.get("idle")
    return LaunchRequest(
        image_arn=raw.get("image_arn", ""),
        image_version=raw.get("image_version", ""),
        execution_role_arn=raw.get("execution_role_arn", ""),
        idle=IdlePolicy(idle["max_idle_s"], idle["suspended_s"], idle["auto_resume"]) if idle else None,
        max_duration_s=raw.get("max_duration_s"),
        ingress_connectors=tuple(raw.get("ingress_connectors", ())),
        egress_connectors=tuple(raw.get("egress_connectors", ())),
        payload=raw.get("payload", ""),
        log_group=raw.get("log_group", ""),
    )
