"""What a RunMicrovm asks for: checked against the catalog and the service's rules, and turned into a record."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from sbxtui.core.model import SandboxState
from sbxtui.localcloud import faults
from sbxtui.localcloud.catalog import IMAGE_VERSION, CatalogImage
from sbxtui.localcloud.records import IdleRule, Record
from sbxtui.localcloud.world import World

MANAGED_CONNECTORS = ("ALL_INGRESS", "HTTP_INGRESS", "NO_INGRESS", "SHELL_INGRESS", "INTERNET_EGRESS")


def check_launch(params: Mapping[str, Any], world: World) -> CatalogImage:
    """The image of a launch that may begin. What the local cloud cannot do is refused, never ignored.

    Raises:
        Fault: In the order the service checks: ARN, image, payload, logging, connectors.
    """
    image = world.catalog.for_launch(params["imageIdentifier"], params.get("imageVersion"))
    logging = params.get("logging", {})
    if "cloudWatch" in logging:
        if "executionRoleArn" not in params:
            raise faults.validation("Logging cannot be enabled without providing executionRoleArn")
        raise faults.validation(
            "The local cloud sends no logs to CloudWatch; leave `logging` out or set it to disabled"
        )
    if "kmsKeyIdentifier" in params:
        raise faults.validation("The local cloud encrypts nothing with KMS keys; leave `kmsKeyIdentifier` out")
    for arn in params.get("ingressNetworkConnectors", ()):
        if _connector_name(arn, "INGRESS") == "SHELL_INGRESS":
            raise faults.validation("The local cloud has no shell ingress; leave SHELL_INGRESS out")
    for arn in params.get("egressNetworkConnectors", ()):
        _connector_name(arn, "EGRESS")
        raise faults.validation("The local cloud gives sandboxes no network; leave `egressNetworkConnectors` out")
    return image


def new_record(
    params: Mapping[str, Any], image: CatalogImage, world: World, endpoint_port: int, runtime: str
) -> Record:
    """A fresh PENDING sandbox."""
    idle = params.get("idlePolicy")
    base = image.made_of or image
    return Record(
        id=f"microvm-{uuid.uuid4()}",
        state=SandboxState.PENDING,
        image_name=base.name,
        image_arn=base.arn,
        image_version=IMAGE_VERSION,
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
        origin=image.name if image.made_of else "",
        ingress_connectors=tuple(params.get("ingressNetworkConnectors", ()))
        or (managed_connector(world.catalog.region, "HTTP_INGRESS"),),
    )


def fingerprint(params: Mapping[str, Any]) -> str:
    """Equal for launches that ask for the same; the client token is not part of what is asked for."""
    asked = {name: value for name, value in params.items() if name != "clientToken"}
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()


def managed_connector(region: str, name: str) -> str:
    """The ARN of one of the platform's own connectors."""
    return f"arn:aws:lambda:{region}:aws:network-connector:aws-network-connector:{name}"


def _connector_name(arn: str, direction: str) -> str:
    parts = arn.split(":")
    if len(parts) < 7 or parts[0] != "arn" or parts[5] != "network-connector":
        raise faults.validation(f"Malformed network connector ARN: {arn}")
    name = parts[-1]
    if parts[4] == "aws" and (name not in MANAGED_CONNECTORS or not name.endswith(direction)):
        raise faults.validation(f"Unrecognized managed network connector ARN: {arn}")
    if parts[4] != "aws":
        raise faults.validation(f"The local cloud has no network connector {arn}")
    return name
