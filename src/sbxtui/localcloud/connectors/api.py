"""What each operation on network connectors does. Their members are PascalCase, and their errors the older ones."""

from __future__ import annotations

import re
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from sbxtui.localcloud import faults
from sbxtui.localcloud.connectors.records import Connector, ConnectorStore, Version
from sbxtui.localcloud.faults import Fault
from sbxtui.localcloud.keys import HomeKeys
from sbxtui.localcloud.paging import page_of
from sbxtui.localcloud.replays import fingerprint

MAX_CONNECTORS = 100
_PAGE = 50
_KIND = "VPC_EGRESS"
_VERSIONED = re.compile(r"(.+:network-connector:[^:]+):([1-9][0-9]{0,8})")

Params = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ConnectorApi:
    """The connectors of a home. `is_used` says whether a sandbox that lives was launched with an ARN."""

    store: ConnectorStore
    keys: HomeKeys
    region: str
    account_id: str
    time_scale: float
    is_used: Callable[[str], bool] = field(default=lambda arn: False)

    def handlers(self) -> dict[str, Callable[[Params], Awaitable[dict[str, Any]]]]:
        """By operation."""
        return {
            "CreateNetworkConnector": self.create,
            "GetNetworkConnector": self.get,
            "ListNetworkConnectors": self.list_all,
            "ListNetworkConnectorVersions": self.list_versions,
            "UpdateNetworkConnector": self.update,
            "DeleteNetworkConnector": self.delete,
        }

    async def create(self, params: Params) -> dict[str, Any]:
        """CreateNetworkConnector; the same client token with the same request gives the same connector."""
        asked = fingerprint(params)
        for known in self._living():
            if (token := params.get("ClientToken")) and token in known.tokens:
                return self._replayed(known, token, asked)
        if "OperatorRole" not in params:
            raise faults.invalid_parameter(f"NetworkConnectorOperatorRole is required for {_KIND} connector type")
        _check_configuration(params["Configuration"], is_new=True)
        name = _plain_name(params["Name"])
        if any(known.name == name for known in self._living()):
            raise faults.resource_conflict(f"Network connector already exists: {name}")
        if len(self._living()) >= MAX_CONNECTORS:
            message = f"You have reached the limit of {MAX_CONNECTORS} network connectors in this account."
            raise Fault(faults.FaultBody("NetworkConnectorLimitExceededException", 400, message, {"Type": "User"}))
        first = Version(1, params["Configuration"], params["OperatorRole"], datetime.now(UTC))
        tokens = {params["ClientToken"]: asked} if "ClientToken" in params else {}
        made = Connector(f"nc-{uuid.uuid4()}", name, (first,), params.get("Tags", {}), tokens)
        self.store.save(made)
        return self._summary(made, first.made_at)

    async def get(self, params: Params) -> dict[str, Any]:
        """GetNetworkConnector."""
        found, version = self._find(params["Identifier"])
        return self._details(found, version)

    async def list_all(self, params: Params) -> dict[str, Any]:
        """ListNetworkConnectors, by name."""
        found = sorted(self._living(), key=lambda one: one.name)
        rows = [((one.name,), self._row(one)) for one in found if self._is_wanted(one, params)]
        return self._page("ListNetworkConnectors", "NetworkConnectors", rows, params)

    async def list_versions(self, params: Params) -> dict[str, Any]:
        """ListNetworkConnectorVersions, oldest first."""
        found, _ = self._find(params["Identifier"])
        rows = [
            ((f"{version.number:09}",), self._version_row(found, version))
            for version in found.versions
            if self._is_wanted(found, params)
        ]
        return self._page("ListNetworkConnectorVersions", "NetworkConnectorVersions", rows, params)

    async def update(self, params: Params) -> dict[str, Any]:
        """UpdateNetworkConnector: a further version."""
        found, _ = self._find(params["Identifier"])
        asked = fingerprint(params)
        if (token := params.get("ClientToken")) and token in found.tokens:
            return self._replayed(found, token, asked)
        now = datetime.now(UTC)
        if found.last_update(now, self.time_scale) == "InProgress" or found.deleting_at is not None:
            state = found.state(now, self.time_scale)
            raise faults.resource_conflict(f"Network connector {found.name} is in state {state}; try again later")
        configuration = params.get("Configuration", found.latest.configuration)
        _check_configuration(configuration, is_new=False)
        role = params.get("OperatorRole", found.latest.operator_role)
        version = Version(found.latest.number + 1, configuration, role, now)
        tokens = {**found.tokens, **({params["ClientToken"]: asked} if "ClientToken" in params else {})}
        changed = found.with_changes(versions=(*found.versions, version), tokens=tokens)
        self.store.save(changed)
        return self._summary(changed) | {
            "LastUpdateStatus": changed.last_update(now, self.time_scale),
            "LastModified": now,
        }

    async def delete(self, params: Params) -> dict[str, Any]:
        """DeleteNetworkConnector; refused while a sandbox has it."""
        found, _ = self._find(params["Identifier"])
        if self.is_used(self.arn_of(found)):
            raise faults.resource_conflict(f"Network connector {found.name} is in use by a MicroVM")
        if found.deleting_at is None:
            found = found.with_changes(deleting_at=datetime.now(UTC))
            self.store.save(found)
        return self._summary(found)

    def check_launch(self, arn: str) -> None:
        """Refuse a connector that no sandbox can be launched with now.

        Raises:
            Fault: 400.
        """
        try:
            found, _ = self._find(arn)
        except Fault as exc:
            raise faults.validation(f"The network connector {arn} does not exist") from exc
        vpc = found.latest.configuration.get("VpcEgressConfiguration", {})
        if vpc.get("AssociatedComputeResourceTypes", ["MicroVm"]) != ["MicroVm"]:
            raise faults.validation(f"The network connector {arn} is not associated with compute type MicroVm")
        if (state := found.state(datetime.now(UTC), self.time_scale)) != "ACTIVE":
            raise faults.validation(f"The network connector {arn} is in state {state}; it must be ACTIVE")

    def tags(self, arn: str) -> dict[str, str]:
        """The tags of a connector.

        Raises:
            Fault: 404.
        """
        return dict(self._find(arn)[0].tags)

    def set_tags(self, arn: str, tags: Mapping[str, str]) -> None:
        """Replace them.

        Raises:
            Fault: 404.
        """
        self.store.save(self._find(arn)[0].with_changes(tags=dict(tags)))

    def arn_of(self, connector: Connector) -> str:
        """Its ARN without a version."""
        return f"arn:aws:lambda:{self.region}:{self.account_id}:network-connector:{connector.id}"

    def _living(self) -> list[Connector]:
        found = []
        for one in self.store.load_all():
            if one.is_gone(datetime.now(UTC), self.time_scale):
                self.store.delete(one)
            else:
                found.append(one)
        return found

    def _find(self, identifier: str) -> tuple[Connector, Version]:
        match = _VERSIONED.fullmatch(identifier)
        wanted, number = (match[1], int(match[2])) if match else (identifier, 0)
        for one in self._living():
            if wanted in (one.id, one.name, self.arn_of(one)):
                version = next((item for item in one.versions if item.number == number), None)
                if version is not None or not number:
                    return one, version or one.latest
        raise faults.no_such_resource(f"Network connector not found: {identifier}")

    def _replayed(self, known: Connector, token: str, asked: str) -> dict[str, Any]:
        if known.tokens[token] != asked:
            raise faults.resource_conflict("The client token was used before with other parameters")
        return self._summary(known)

    def _is_wanted(self, one: Connector, params: Params) -> bool:
        return params.get("State") in (None, one.state(datetime.now(UTC), self.time_scale))

    def _page(self, operation: str, member: str, rows: Any, params: Params) -> dict[str, Any]:
        try:
            size = min(params.get("MaxItems", _PAGE), _PAGE)
            page, marker = page_of(self.keys, operation, rows, size=size, token=params.get("Marker"))
        except Fault as exc:
            raise faults.invalid_parameter("Invalid Marker") from exc
        return {member: page, **({"NextMarker": marker} if marker else {})}

    def _named(self, one: Connector) -> dict[str, Any]:
        return {"Arn": self.arn_of(one), "Name": one.name, "Id": one.id}

    def _versioned(self, one: Connector, version: Version) -> str:
        return f"{self.arn_of(one)}:{version.number}"

    def _summary(self, one: Connector, now: datetime | None = None) -> dict[str, Any]:
        return self._named(one) | {
            "VersionArn": self._versioned(one, one.latest),
            "Version": one.latest.number,
            "Configuration": one.latest.configuration,
            "OperatorRole": one.latest.operator_role,
            "State": one.state(now or datetime.now(UTC), self.time_scale),
        }

    def _row(self, one: Connector) -> dict[str, Any]:
        return self._named(one) | {
            "Type": _KIND,
            "State": one.state(datetime.now(UTC), self.time_scale),
            "LastModified": one.latest.made_at,
            "LatestVersionArn": self._versioned(one, one.latest),
            "LatestVersion": one.latest.number,
        }

    def _version_row(self, one: Connector, version: Version) -> dict[str, Any]:
        return self._named(one) | {
            "VersionArn": self._versioned(one, version),
            "Version": version.number,
            "LastModified": version.made_at,
            **self._standing(one),
        }

    def _standing(self, one: Connector) -> dict[str, Any]:
        state = one.state(datetime.now(UTC), self.time_scale)
        failed = {"StateReason": _reason(one.latest), "StateReasonCode": one.latest.failure}
        return {"State": state, **(failed if state == "FAILED" else {})}

    def _details(self, one: Connector, version: Version) -> dict[str, Any]:
        status = one.last_update(datetime.now(UTC), self.time_scale)
        failed = {"LastUpdateStatusReason": _reason(one.latest), "LastUpdateStatusReasonCode": one.latest.failure}
        return self._named(one) | {
            "VersionArn": self._versioned(one, version),
            "Version": version.number,
            "LatestVersionArn": self._versioned(one, one.latest),
            "LatestVersion": one.latest.number,
            "Configuration": version.configuration,
            "OperatorRole": version.operator_role,
            "LastUpdateStatus": status,
            "LastModified": one.latest.made_at,
            **self._standing(one),
            **(failed if status == "Failed" else {}),
        }


def _check_configuration(configuration: Mapping[str, Any], *, is_new: bool) -> None:
    vpc = configuration.get("VpcEgressConfiguration")
    if vpc is None:
        raise faults.invalid_parameter("VpcEgressConfiguration is required")
    for member in ("SubnetIds", "SecurityGroupIds", "AssociatedComputeResourceTypes"):
        if is_new and member != "SecurityGroupIds" and not vpc.get(member):
            raise faults.invalid_parameter(f"{member} is required for {_KIND} connector type")


def _plain_name(name: str) -> str:
    return name.rpartition("network-connector:")[2].partition(":")[0]


def _reason(version: Version) -> str:
    return f"The connector could not be made: {version.failure}"
