"""What a request for an image may ask for, in the order and words of the service."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from sbxtui.core.model import MEMORY_SIZES_MIB
from sbxtui.localcloud import faults

RESERVED_KEYS = frozenset({"AWS_REGION"})
_S3_URI = re.compile(r"s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])/(.+)")
_LIFECYCLE = ("run", "resume", "suspend", "terminate")
_READY_NEEDED = (
    "The ready (/ready) MicroVM image hook must be enabled when any MicroVM lifecycle hook (run, resume, suspend, or "
    "terminate) is enabled."
)


def check_request(
    params: Mapping[str, Any],
    managed_arn: str,
    managed_versions: Mapping[str, str],
    check_egress: Callable[[str], None],
) -> None:
    """Refuse what no image can be made of.

    Args:
        params: Input of a create or an update.
        managed_arn: The base.
        managed_versions: Its versions: as they are sent, and as they are echoed.
        check_egress: Raises for an egress connector that a build cannot use.

    Raises:
        Fault: 400.
    """
    _check_base(params, managed_arn, managed_versions)
    s3_place(params["codeArtifact"]["uri"])
    _check_memory(params, managed_arn)
    if reserved := sorted(RESERVED_KEYS & params.get("environmentVariables", {}).keys()):
        raise faults.validation(
            "The environment variables you have provided contain reserved keys that are not supported for "
            f"modification. Reserved keys used in this request: {', '.join(reserved)}"
        )
    _check_hooks(params.get("hooks", {}))
    if "kmsKeyIdentifier" in params:
        raise faults.validation("The local cloud encrypts nothing with KMS keys; leave `kmsKeyIdentifier` out")
    if params.get("additionalOsCapabilities"):
        raise faults.validation("The local cloud gives no capabilities; leave `additionalOsCapabilities` out")
    for arn in params.get("egressNetworkConnectors", ()):
        check_egress(arn)


def s3_place(uri: str) -> tuple[str, str]:
    """Bucket and key of a code artifact.

    Raises:
        Fault: 400.
    """
    match = _S3_URI.fullmatch(uri)
    if match is None:
        message = "CodeArtifact URI must be a valid S3 URI in the format: s3://<bucket>/<key>"
        raise faults.validation(message)
    return match[1], match[2]


def _check_base(params: Mapping[str, Any], managed_arn: str, managed_versions: Mapping[str, str]) -> None:
    arn = params["baseImageArn"]
    if not arn.startswith("arn:"):
        raise faults.validation(f"Invalid ARN format: {arn}")
    version = params.get("baseImageVersion")
    is_known = version is None or version in managed_versions or version in managed_versions.values()
    if arn != managed_arn or not is_known:
        wanted = f" and version {version}" if version is not None else ""
        raise faults.validation(f"No managed MicroVM Image with arn {arn}{wanted} is available")


def _check_memory(params: Mapping[str, Any], managed_arn: str) -> None:
    for resource in params.get("resources", ()):
        if (size := resource["minimumMemoryInMiB"]) not in MEMORY_SIZES_MIB:
            raise faults.validation(
                f"The requested memory size of {size} MiB is not supported by base MicroVM image {managed_arn}. "
                f"Supported memory sizes in MiB are: {sorted(MEMORY_SIZES_MIB)}."
            )


def _check_hooks(hooks: Mapping[str, Any]) -> None:
    image_hooks, lifecycle = hooks.get("microvmImageHooks", {}), hooks.get("microvmHooks", {})
    has_lifecycle = any(lifecycle.get(name) == "ENABLED" for name in _LIFECYCLE)
    if has_lifecycle and image_hooks.get("ready") != "ENABLED":
        raise faults.validation(_READY_NEEDED)
    has_any = has_lifecycle or "ENABLED" in (image_hooks.get("ready"), image_hooks.get("validate"))
    if has_any and "port" not in hooks:
        raise faults.validation("A port must be given when any hook is enabled")
