"""One network connector on disk, and the state it is in by the clock.

States follow from instants that are written down, so that no task drives them and no restart can lose one.
"""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from sbxtui.localcloud.recordjson import record_json
from sbxtui.localcloud.spec import write_private

log = logging.getLogger(__name__)

# On the platform minutes; the order of states is what clients depend on.
SETTLE_S, DELETE_S = 2.0, 2.0
# A rehearsal: a connector with such a subnet fails for that reason.
_FAILURES = (
    *("DisallowedByVpcEncryptionControl", "Ec2RequestLimitExceeded", "InsufficientRolePermissions", "InternalError"),
    *("InternetGatewayNotAttached", "InvalidSecurityGroup", "InvalidSubnet", "SecurityGroupsPerInterfaceLimitExceeded"),
    "SubnetOutOfIPAddresses",
)


@dataclass(frozen=True, slots=True)
class Version:
    """One configuration of a connector, numbered from 1."""

    number: int
    configuration: Mapping[str, Any]
    operator_role: str
    made_at: datetime

    @property
    def failure(self) -> str:
        """The reason code it fails with: the subnet `subnet-invalidsubnet` gives `InvalidSubnet`."""
        subnets = self.configuration.get("VpcEgressConfiguration", {}).get("SubnetIds", ())
        wanted = {subnet.removeprefix("subnet-") for subnet in subnets}
        return next((code for code in _FAILURES if code.lower() in wanted), "")

    def is_settled(self, now: datetime, time_scale: float) -> bool:
        """Whether it has been made, or has failed to be."""
        return now >= self.made_at + timedelta(seconds=SETTLE_S / time_scale)


@dataclass(frozen=True, slots=True)
class Connector:
    """A connector; `versions` are oldest first and never empty. `tokens` maps client tokens to what they asked for."""

    id: str
    name: str
    versions: tuple[Version, ...]
    tags: Mapping[str, str] = field(default_factory=dict)
    tokens: Mapping[str, str] = field(default_factory=dict)
    deleting_at: datetime | None = None

    @property
    def latest(self) -> Version:
        """The newest configuration."""
        return self.versions[-1]

    def state(self, now: datetime, time_scale: float) -> str:
        """PENDING until the first version is made; an update's failure leaves what was there."""
        if self.deleting_at is not None:
            return "DELETING"
        first = self.versions[0]
        if not first.is_settled(now, time_scale):
            return "PENDING"
        return "FAILED" if first.failure and len(self.versions) == 1 else "ACTIVE"

    def is_gone(self, now: datetime, time_scale: float) -> bool:
        """Whether its deletion is over."""
        return self.deleting_at is not None and now >= self.deleting_at + timedelta(seconds=DELETE_S / time_scale)

    def last_update(self, now: datetime, time_scale: float) -> str:
        """How the newest change stands."""
        if not self.latest.is_settled(now, time_scale):
            return "InProgress"
        return "Failed" if self.latest.failure else "Successful"

    def with_changes(self, **changes: Any) -> Connector:
        """A copy with some fields replaced."""
        return dataclasses.replace(self, **changes)

    def to_json(self) -> str:
        """One JSON document."""
        return record_json(self)

    @classmethod
    def from_json(cls, text: str) -> Connector:
        """Undo `to_json`.

        Raises:
            ValueError: It is no connector.
        """
        try:
            raw: dict[str, Any] = json.loads(text)
            versions = tuple(
                Version(one["number"], one["configuration"], one["operator_role"], _instant(one["made_at"]))
                for one in raw["versions"]
            )
            deleting_at = _instant(raw["deleting_at"]) if raw["deleting_at"] else None
            return cls(raw["id"], raw["name"], versions, raw["tags"], raw["tokens"], deleting_at)
        except (KeyError, TypeError, AttributeError) as exc:
            raise ValueError(f"no network connector: {exc}") from exc


@dataclass(frozen=True, slots=True)
class ConnectorStore:
    """The folder of the connectors: one file each."""

    directory: Path

    def load_all(self) -> Iterator[Connector]:
        """All that can be read. Blocking."""
        for path in sorted(self.directory.glob("nc-*.json")):
            try:
                yield Connector.from_json(path.read_text())
            except (OSError, ValueError) as exc:
                log.error("the network connector %s cannot be read: %s", path.name, exc)

    def save(self, connector: Connector) -> None:
        """Write one; durable on return. Blocking.

        Raises:
            OSError: The disk is full or read-only; the one before holds.
        """
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(self._path(connector), connector.to_json(), is_durable=True)

    def delete(self, connector: Connector) -> None:
        """Forget one."""
        self._path(connector).unlink(missing_ok=True)

    def _path(self, connector: Connector) -> Path:
        return self.directory / f"{connector.id}.json"


def _instant(text: str) -> datetime:
    return datetime.fromisoformat(text)
