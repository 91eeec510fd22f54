"""The images of the local cloud: one per size, all made of this machine's userland and the bundled guest."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from sbxtui.core.model import DEFAULT_MEMORY_MIB, MEMORY_SIZES_MIB, VCPUS_BY_MEMORY_MIB
from sbxtui.localcloud import faults
from sbxtui.localcloud.program import Program

IMAGE_VERSION = "1.0"
# The platform's one base; here it stands for this machine's userland. Its versions, newest first, as they are listed
# and sent, and as they are read back.
MANAGED_IMAGE = "al2023-1"
MANAGED_VERSIONS = {"1": "1.0", "0": "0.0"}
BASE_IMAGE = "sbx-base"
HOOK_PORT = 9000
AGENT_PORT = 8080
RUN_TIMEOUT_S = 30
SUSPEND_TIMEOUT_S = 30
RESUME_TIMEOUT_S = 10
TERMINATE_TIMEOUT_S = 5

# The platform's disk by baseline (fact sheet §3.1).
_DISK_MIB = {512: 8_192, 1024: 8_192, 2048: 8_192, 4096: 16_384, 8192: 32_768}
# Enough for real work, few enough that a machine of two processors outlives as many runaway ones.
_PIDS_MAX = {512: 512, 1024: 1_024, 2048: 1_024, 4096: 2_048, 8192: 4_096}
_TMPFS_SHARE = 4


@dataclass(frozen=True, slots=True)
class CatalogImage:
    """One image in one version.

    The fixed ones have the single version `1.0`, active, with all hooks. A snapshot or a sandbox to fork is one, too:
    `made_of` is then the image of the sandbox it is of, `runtime` what it needs. A built one has a `program`, and the
    `origin` its sandboxes go on from.
    """

    name: str
    arn: str
    memory_mib: int
    made_of: CatalogImage | None = None
    runtime: str = ""
    version: str = IMAGE_VERSION
    program: Program | None = None
    origin: str = ""

    @property
    def vcpus(self) -> int:
        """Processors a sandbox of this size may use, as on the platform."""
        return VCPUS_BY_MEMORY_MIB[self.memory_mib]

    @property
    def disk_mib(self) -> int:
        """Disk a sandbox of this size may fill."""
        return _DISK_MIB[self.memory_mib]

    @property
    def pids_max(self) -> int:
        """Tasks a sandbox may have."""
        return _PIDS_MAX[self.memory_mib]

    @property
    def tmpfs_mib(self) -> int:
        """Size of `/tmp`."""
        return self.memory_mib // _TMPFS_SHARE


class MoreImages(Protocol):
    """Images that come and go."""

    def listed(self) -> Sequence[CatalogImage]:
        """Those that are worth a list."""

    def find(self, name: str) -> CatalogImage | None:
        """One of that name, listed or not."""


# A built image's version by name: the newest active one, or the one that is named. None: there is none.
FindBuilt = Callable[[str, str | None], CatalogImage | None]


@dataclass(frozen=True, slots=True)
class Catalog:
    """All images of a home. Lookups raise the service's own errors."""

    region: str
    account_id: str
    created_at: datetime
    more: MoreImages | None = None
    find_built: FindBuilt = lambda name, version: None

    def all_images(self) -> tuple[CatalogImage, ...]:
        """The fixed ones, then those that come and go."""
        return (*self.images(), *(self.more.listed() if self.more else ()))

    def find(self, arn: str) -> CatalogImage | None:
        """The image of an ARN."""
        for image in self.images():
            if image.arn == arn:
                return image
        name = self.name_in(arn)
        return self.more.find(name) if self.more and name else None

    def name_in(self, arn: str) -> str:
        """The name in an ARN of this home's; empty where it is none."""
        name = arn.removeprefix(self.arn_of(""))
        return name if name != arn and "/" not in name and ":" not in name else ""

    def images(self) -> tuple[CatalogImage, ...]:
        """The fixed ones, sorted by name; `sbx-base` is the default size under a short name."""
        sizes = {BASE_IMAGE: DEFAULT_MEMORY_MIB} | {f"{BASE_IMAGE}-{size}": size for size in MEMORY_SIZES_MIB}
        return tuple(CatalogImage(name, self.arn_of(name), size) for name, size in sorted(sizes.items()))

    def by_arn(self, arn: str) -> CatalogImage:
        """The image of an ARN in an image operation; not a built one.

        Raises:
            Fault: 400 for no ARN, 403 for the slash form, 404 for no such image.
        """
        check_arn(arn)
        if (image := self.find(arn)) is not None:
            return image
        raise no_image(arn)

    def for_launch(self, arn: str, version: str | None) -> CatalogImage:
        """The image a RunMicrovm names.

        Raises:
            Fault: 400 for no ARN, 404 for no image or no such active version.
        """
        if not arn.startswith("arn:"):
            raise faults.validation("Malformed ARN - doesn't start with 'arn:'")
        image = self.find(arn)
        if image is not None and version in (None, IMAGE_VERSION):
            return image
        if (name := self.name_in(arn)) and (built := self.find_built(name, version)) is not None:
            return built
        pinned = f" and version {version}" if version is not None else ""
        raise faults.not_found(f"No active version found for MicroVM image {arn}{pinned}", "MicroVMImage", arn)

    def check_version(self, image: CatalogImage, version: str) -> None:
        """Refuse a version an image does not have.

        Raises:
            Fault: 404.
        """
        if version != IMAGE_VERSION:
            raise no_version(image.arn, version)

    def summary(self, image: CatalogImage) -> dict[str, Any]:
        """A row of ListMicrovmImages."""
        return {
            "imageArn": image.arn,
            "name": image.name,
            "state": "CREATED",
            "latestActiveImageVersion": IMAGE_VERSION,
            "createdAt": self.created_at,
        }

    def details(self, image: CatalogImage) -> dict[str, Any]:
        """The answer of GetMicrovmImage."""
        return self.summary(image) | {"updatedAt": self.created_at, "tags": {}}

    def version_details(self, image: CatalogImage) -> dict[str, Any]:
        """The answer of GetMicrovmImageVersion, and a row of ListMicrovmImageVersions."""
        return {
            "imageArn": image.arn,
            "imageVersion": IMAGE_VERSION,
            "state": "SUCCESSFUL",
            "status": "ACTIVE",
            "createdAt": self.created_at,
            "updatedAt": self.created_at,
            "description": _description(image),
            "baseImageArn": self.managed_arn,
            "baseImageVersion": "1.0",
            "buildRoleArn": f"arn:aws:iam::{self.account_id}:role/sbx-local-build",
            "codeArtifact": {"uri": "sbx://bundled-guest"},
            "cpuConfigurations": [{"architecture": architecture()}],
            "resources": [{"minimumMemoryInMiB": image.memory_mib}],
            "hooks": _hooks(),
            "environmentVariables": {},
            "egressNetworkConnectors": [],
        }

    @property
    def managed_arn(self) -> str:
        """The base all images are made of."""
        return f"arn:aws:lambda:{self.region}:aws:microvm-image:{MANAGED_IMAGE}"

    def managed_summary(self) -> dict[str, Any]:
        """A row of ListManagedMicrovmImages."""
        return {"imageArn": self.managed_arn, "createdAt": self.created_at, "updatedAt": self.created_at}

    def managed_versions(self, arn: str) -> Iterator[dict[str, Any]]:
        """The rows of ListManagedMicrovmImageVersions.

        Raises:
            Fault: 400 for no ARN, 404 for another image.
        """
        check_arn(arn)
        if arn != self.managed_arn:
            raise no_image(arn)
        for version in MANAGED_VERSIONS:
            yield self.managed_summary() | {
                "imageVersion": version,
                "status": "AVAILABLE",
                "supportedCpuConfigurations": [{"architecture": architecture()}],
            }

    def arn_of(self, name: str) -> str:
        """The ARN an image of that name has."""
        return f"arn:aws:lambda:{self.region}:{self.account_id}:microvm-image:{name}"


def check_arn(arn: str) -> None:
    """Refuse what image operations take for no ARN of an image.

    Raises:
        Fault: 400 for a bare name, 403 for the slash form.
    """
    if not arn.startswith("arn:"):
        raise faults.validation(f"Invalid ARN format: {arn}")
    if "microvm-image/" in arn:
        raise faults.access_denied(f"User is not authorized to perform this action on resource {arn}")


def no_image(arn: str) -> faults.Fault:
    """404: there is no such image."""
    return faults.not_found(f"MicroVMImage not found for MicroVMImageID: {arn}", "MicroVMImage", arn)


def no_version(arn: str, version: str) -> faults.Fault:
    """404: the image has no such version."""
    message = f"MicroVMImage version {version} not found for MicroVMImageID: {arn}"
    return faults.not_found(message, "MicroVMImageVersion", f"{arn}:{version}")


def _description(image: CatalogImage) -> str:
    if image.made_of is not None:
        return f"A copy of a sandbox that was made from {image.made_of.name}"
    return "This machine's own userland, read-only, with the bundled guest"


def architecture() -> str:
    """This machine's, in the model's words."""
    return "ARM_64" if platform.machine() in ("aarch64", "arm64") else "X86_64"


def _hooks() -> dict[str, Any]:
    return {
        "port": HOOK_PORT,
        "microvmHooks": {
            "run": "ENABLED",
            "runTimeoutInSeconds": RUN_TIMEOUT_S,
            "suspend": "ENABLED",
            "suspendTimeoutInSeconds": SUSPEND_TIMEOUT_S,
            "resume": "ENABLED",
            "resumeTimeoutInSeconds": RESUME_TIMEOUT_S,
            "terminate": "ENABLED",
            "terminateTimeoutInSeconds": TERMINATE_TIMEOUT_S,
        },
        "microvmImageHooks": {
            "ready": "ENABLED",
            "readyTimeoutInSeconds": 60,
            "validate": "ENABLED",
            "validateTimeoutInSeconds": 60,
        },
    }
