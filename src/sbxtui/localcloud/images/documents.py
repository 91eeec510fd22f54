"""Images, versions and builds as the API tells them."""

from __future__ import annotations

from typing import Any

from sbxtui.localcloud.catalog import MANAGED_VERSIONS, architecture
from sbxtui.localcloud.images.records import FAILED, GENERATIONS, SUCCESSFUL, UNDER_WAY, Image, Version

_NEWEST_BASE = next(iter(MANAGED_VERSIONS.values()))
_ECHOED = (
    *("baseImageArn", "buildRoleArn", "description", "codeArtifact", "logging", "egressNetworkConnectors"),
    *("cpuConfigurations", "resources", "hooks", "environmentVariables"),
)


def image_row(image: Image, arn: str) -> dict[str, Any]:
    """A row of ListMicrovmImages."""
    active, failed = image.newest(SUCCESSFUL), image.newest(FAILED)
    return {
        "imageArn": arn,
        "name": image.name,
        "state": "DELETING" if image.deleting_at else image.state,
        "createdAt": image.made_at,
        **({"latestActiveImageVersion": active.name} if active else {}),
        **({"latestFailedImageVersion": failed.name} if failed else {}),
    }


def image_details(image: Image, arn: str) -> dict[str, Any]:
    """The answer of GetMicrovmImage."""
    return image_row(image, arn) | {"updatedAt": image.changed_at, "tags": dict(image.tags)}


def made_details(image: Image, version: Version, arn: str) -> dict[str, Any]:
    """The answer of CreateMicrovmImage and UpdateMicrovmImage."""
    return image_details(image, arn) | _asked(version) | {"imageVersion": version.name}


def version_details(image: Image, version: Version, arn: str) -> dict[str, Any]:
    """The answer of GetMicrovmImageVersion, and a row of ListMicrovmImageVersions."""
    return _asked(version) | {
        "imageArn": arn,
        "imageVersion": version.name,
        "state": "DELETING" if version.deleting_at else version.state,
        "status": version.status,
        "createdAt": version.made_at,
        "updatedAt": version.changed_at,
        "tags": dict(image.tags),
    }


def build_rows(version: Version, arn: str) -> list[dict[str, Any]]:
    """The rows of ListMicrovmImageBuilds: one build, told once for each generation of processors."""
    chip = "GRAVITON" if architecture() == "ARM_64" else "INTEL"
    state = version.state if version.state in (*UNDER_WAY, SUCCESSFUL, FAILED) else SUCCESSFUL
    return [
        {
            "imageArn": arn,
            "imageVersion": version.name,
            "buildId": f"{version.build_id}-{generation}",
            "buildState": state,
            "architecture": architecture(),
            "chipset": chip,
            "chipsetGeneration": generation,
            "createdAt": version.made_at,
            **({"stateReason": version.reason} if version.reason else {}),
        }
        for generation in GENERATIONS
    ]


def build_details(version: Version, row: dict[str, Any]) -> dict[str, Any]:
    """The answer of GetMicrovmImageBuild; sizes are told as far as the build came."""
    sizes = {
        "memorySnapshotSizeInBytes": version.memory_bytes,
        "codeInstallSizeInBytes": version.code_bytes,
        "diskSnapshotSizeInBytes": version.disk_bytes,
    }
    known = {name: size for name, size in sizes.items() if size}
    return row | ({"snapshotBuild": known} if known else {})


def _asked(version: Version) -> dict[str, Any]:
    asked = version.asked
    base = asked.get("baseImageVersion", _NEWEST_BASE)
    return {name: asked[name] for name in _ECHOED if name in asked} | {
        "baseImageVersion": MANAGED_VERSIONS.get(base, base)
    }
