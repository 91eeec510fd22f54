"""What the local cloud remembers of each sandbox: one JSON file a sandbox, written before anything is done about it.

A crash at any point leaves a record that says at least as much as has happened; the rest is reconciled with keepers.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from sbxtui.core.model import SandboxState
from sbxtui.localcloud.program import Program
from sbxtui.localcloud.recordjson import record_json
from sbxtui.localcloud.spec import write_private

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class IdleRule:
    """The idle policy of one sandbox, in the platform's seconds (not yet divided by the time scale)."""

    max_idle_s: int
    suspended_s: int
    auto_resume: bool


@dataclass(frozen=True, slots=True)
class Record:
    """One sandbox. `max_duration_s` None: no cap. `token_key` is empty when the launch named no client token.

    `fingerprint` is of the launch request without its token: a replay must have the same one. `origin` is empty, or
    names the copy it goes on from; its image is that copy's. `program` is of a built image, which else is None.
    """

    id: str
    state: SandboxState
    image_name: str
    image_arn: str
    image_version: str
    memory_mib: int
    runtime: str
    endpoint_port: int
    started_at: datetime
    token_key: str
    fingerprint: str
    payload: str = field(repr=False)
    idle: IdleRule | None = None
    max_duration_s: int | None = None
    execution_role_arn: str = ""
    ingress_connectors: tuple[str, ...] = ()
    egress_connectors: tuple[str, ...] = ()
    suspended_at: datetime | None = None
    terminated_at: datetime | None = None
    state_reason: str = ""
    origin: str = ""
    log_group: str = ""
    log_stream: str = ""
    program: Program | None = None

    def with_changes(self, **changes: Any) -> Record:
        """A copy with some fields replaced."""
        return dataclasses.replace(self, **changes)

    def to_json(self) -> str:
        """One JSON document."""
        return record_json(self)

    @classmethod
    def from_json(cls, text: str) -> Record:
        """Undo `to_json`; unknown keys of a newer version are ignored.

        Raises:
            ValueError: It is no record.
        """
        try:
            raw: dict[str, Any] = json.loads(text)
            names = {item.name for item in dataclasses.fields(cls)}
            values = {key: value for key, value in raw.items() if key in names}
            values["state"] = SandboxState(raw["state"])
            values["idle"] = IdleRule(**raw["idle"]) if raw.get("idle") else None
            values["program"] = Program.from_dict(raw["program"]) if raw.get("program") else None
            for name in ("ingress_connectors", "egress_connectors"):
                values[name] = tuple(raw.get(name, ()))
            for name in ("started_at", "suspended_at", "terminated_at"):
                values[name] = datetime.fromisoformat(raw[name]) if raw.get(name) else None
            if values["started_at"] is None or not 0 <= raw["endpoint_port"] < 65_536:
                raise ValueError("no sandbox record: it tells no start or no port")
            return cls(**values)
        except (KeyError, TypeError, AttributeError) as exc:
            raise ValueError(f"no sandbox record: {exc}") from exc


@dataclass(frozen=True, slots=True)
class RecordStore:
    """The folder of the records; `on_saved` is told of each that was written."""

    directory: Path
    on_saved: Callable[[Record], None] = lambda record: None

    def load_all(self) -> Iterator[Record]:
        """All readable records; a damaged one is kept aside by name and logged, and the rest go on."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in sorted(self.directory.glob("*.json")):
            try:
                yield Record.from_json(path.read_text())
            except ValueError as exc:
                log.error("the record %s is damaged (%s); kept as .damaged", path.name, exc)
                path.replace(path.with_suffix(".damaged"))

    def load(self, sandbox_id: str) -> Record | None:
        """The record of one; None if there is none that can be read."""
        try:
            return Record.from_json(self._path(sandbox_id).read_text())
        except (OSError, ValueError):
            return None

    def damaged_text(self, sandbox_id: str) -> str:
        """What a record said that was kept aside; empty if there is none."""
        try:
            return self._path(sandbox_id).with_suffix(".damaged").read_text(errors="replace")
        except OSError:
            return ""

    async def save(self, record: Record) -> None:
        """Write a record durably; on return neither a crash nor a power cut can lose it.

        Raises:
            OSError: The disk is full or read-only; the file holds the state before.
        """
        await asyncio.to_thread(write_private, self._path(record.id), record.to_json(), is_durable=True)
        self.on_saved(record)

    def delete(self, sandbox_id: str) -> None:
        """Forget a record; missing already is fine."""
        self._path(sandbox_id).unlink(missing_ok=True)

    def _path(self, sandbox_id: str) -> Path:
        return self.directory / f"{sandbox_id}.json"


def as_item(record: Record) -> dict[str, Any]:
    """A row of ListMicrovms."""
    return {
        "microvmId": record.id,
        "state": record.state.value,
        "imageArn": record.image_arn,
        "imageVersion": record.image_version,
        "startedAt": record.started_at,
    }


# The shape requires a number; one that no sandbox lives to see says "no cap" to every client that computes with it.
NO_MAX_DURATION_S = 2_147_483_647


def as_details(record: Record) -> dict[str, Any]:
    """The answer of RunMicrovm and GetMicrovm; absent facts are absent members."""
    optional: Mapping[str, Any] = {
        "executionRoleArn": record.execution_role_arn,
        "idlePolicy": record.idle
        and {
            "maxIdleDurationSeconds": record.idle.max_idle_s,
            "suspendedDurationSeconds": record.idle.suspended_s,
            "autoResumeEnabled": record.idle.auto_resume,
        },
        "terminatedAt": record.terminated_at,
        "stateReason": record.state_reason,
        "ingressNetworkConnectors": list(record.ingress_connectors),
        "egressNetworkConnectors": list(record.egress_connectors),
    }
    return (
        as_item(record)
        | {
            "endpoint": f"127.0.0.1:{record.endpoint_port}",
            "maximumDurationInSeconds": record.max_duration_s or NO_MAX_DURATION_S,
        }
        | {name: value for name, value in optional.items() if value}
    )
