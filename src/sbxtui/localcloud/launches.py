"""What a RunMicrovm asks for: checked against the catalog and the service's rules, and turned into a record."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from sbxtui.core.model import SandboxState
from sbxtui.localcloud import faults
from sbxtui.localcloud.catalog import CatalogImage
from sbxtui.localcloud.records import IdleRule, Record
from sbxtui.localcloud.replays import fingerprint
from sbxtui.localcloud.world import World

MANAGED_CONNECTORS = ("ALL_INGRESS", "HTTP_INGRESS", "NO_INGRESS", "SHELL_INGRESS", "INTERNET_EGRESS")


def check_launch(params: Mapping[str, Any], world: World) -> CatalogImage:
    """The image of a launch that may begin. What the local cloud cannot do is refused, never ignored.

    Raises:
        Fault: In the order the service checks: ARN, image, payload, logging, connectors.
    """
    image = world.catalog.for_launch(params["imageIdentifier"], params.get("imageVersion"))
    if params.get("runHookPayload") and image.program is not None and "run" not in image.program.hooks:
        raise faults.validation("The run hook must be enabled in the MicroVM image to pass the run hook payload")
    if "cloudWatch" in params.get("logging", {}) and "executionRoleArn" not in params:
        raise faults.validation("Logging cannot be enabled without providing executionRoleArn")
    if "kmsKeyIdentifier" in params:
        raise faults.validation("The local cloud encrypts nothing with KMS keys; leave `kmsKeyIdentifier` out")
    for arn in params.get("ingressNetworkConnectors", ()):
        if managed_name(arn, "INGRESS") is None:
            raise faults.validation(f"The network connector {arn} is no ingress connector")
    egress = params.get("egressNetworkConnectors", ())
    if len(egress) > 1:
        raise faults.validation("At most one egress network connector can be given")
    for arn in egress:
        if managed_name(arn, "EGRESS") is None:
            world.check_egress(arn)
    return image


def check_build_egress(arn: str) -> None:
    """Refuse an egress that no build here can be meant to have.

    The internet is what builds have anyhow, so that naming it changes nothing.

    Raises:
        Fault: 400.
    """
    if managed_name(arn, "EGRESS") is None:
        raise faults.validation("The local cloud builds by no connector of the account; leave those out")


def new_record(
    params: Mapping[str, Any], image: CatalogImage, world: World, endpoint_port: int, runtime: str
) -> Record:
    """A fresh PENDING sandbox."""
    idle = params.get("idlePolicy")
    logs = params.get("logging", {}).get("cloudWatch", {})
    base = image.made_of or image
    return Record(
        id=f"microvm-{uuid.uuid4()}",
        state=SandboxState.PENDING,
        image_name=base.name,
        image_arn=base.arn,
        image_version=base.version,
        memory_mib=image.memory_mib,
        runtime=image.runtime or runtime,
        endpoint_port=endpoint_port,
        started_at=datetime.now(UTC),
        token_key=params.get("clientToken", ""),
        fingerprint=fingerprint(params),
        payload=params.get("runHookPayload", ""),
        idle=idle
        and IdleRule(idle["maxIdleDurationSeconds"], idle["suspendedDurationSeconds"], idle["autoResumeEnabled"]),
        max_duration_s=params.get("maximumDurationInSeconds", world.default_max_duration_s),
        execution_role_arn=params.get("executionRoleArn", ""),
        origin=image.name if image.made_of else image.origin,
        program=base.program,
        log_group=logs.get("logGroup", ""),
        log_stream=logs.get("logStream", ""),
        egress_connectors=tuple(params.get("egressNetworkConnectors", ())),
        ingress_connectors=tuple(params.get("ingressNetworkConnectors", ()))
        or (managed_connector(world.catalog.region, "HTTP_INGRESS"),),
    )


def managed_connector(region: str, name: str) -> str:
    """The ARN of one of the platform's own connectors."""
    return f"arn:aws:lambda:{region}:aws:network-connector:aws-network-connector:{name}"


def managed_name(arn: str, direction: str) -> str | None:
    """The name of one of the platform's own connectors; None: the ARN is of a connector of the account.

    Raises:
        Fault: 400, it is neither.
    """
    parts = arn.split(":")
    if len(parts) < 7 or parts[0] != "arn" or parts[5] != "network-connector":
        raise faults.validation(f"Malformed network connector ARN: {arn}")
    if parts[4] != "aws":
        return None
    if parts[-1] not in MANAGED_CONNECTORS or not parts[-1].endswith(direction):
        raise faults.validation(f"Unrecognized managed network connector ARN: {arn}")
    return parts[-1]
