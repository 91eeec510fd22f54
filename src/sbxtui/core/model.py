"""The values every layer passes around. Frozen; bare dicts stay where JSON is decoded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from datetime import datetime
from enum import StrEnum
from typing import NewType

from sbxtui.core.values import dataclass

SandboxId = NewType("SandboxId", str)
ContextName = NewType("ContextName", str)

# The version in the facts of a sandbox whose guest answers the old contract only.
OLD_GUEST = "v1"

MEMORY_SIZES_MIB = (512, 1024, 2048, 4096, 8192)
DEFAULT_MEMORY_MIB = 2048

# A size's peak, as a guest sees it: the platform gives four times the baseline (fact sheet §3.1).
VCPUS_BY_MEMORY_MIB = {512: 1, 1024: 2, 2048: 4, 4096: 8, 8192: 16}


class SandboxState(StrEnum):
    """State as the control plane tells it; UNKNOWN when it could not be asked."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUSPENDING = "SUSPENDING"
    SUSPENDED = "SUSPENDED"
    TERMINATING = "TERMINATING"
    TERMINATED = "TERMINATED"
    UNKNOWN = "UNKNOWN"

    @property
    def is_gone(self) -> bool:
        """Whether nothing can bring this sandbox back."""
        return self in (SandboxState.TERMINATING, SandboxState.TERMINATED)


class ContextKind(StrEnum):
    """Where a context's control plane runs."""

    LOCAL = "local"
    AWS = "aws"


@dataclass(frozen=True, slots=True)
class Context:
    """A control plane: the local cloud, or an AWS profile and region.

    `account_id` is empty until the caller's identity was checked once. `endpoint_url` is set for servers
    other than AWS.
    """

    name: ContextName
    kind: ContextKind
    region: str = ""
    profile: str = ""
    account_id: str = ""
    endpoint_url: str = ""

    @property
    def isolation_words(self) -> str:
        """Isolation in words where the kind alone decides it; the local cloud tells its own."""
        return "Firecracker" if self.kind is ContextKind.AWS and not self.endpoint_url else ""


@dataclass(frozen=True, slots=True)
class IdlePolicy:
    """When the platform suspends and ends an idle sandbox. Only bytes through the endpoint count as activity."""

    max_idle_s: int
    suspended_s: int
    auto_resume: bool = True


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """All of a RunMicrovm request, so that a crash can replay exactly it.

    `payload` is the launch identity `{v, name, owner, purpose}` as JSON, empty for images without a run hook.
    """

    image_arn: str
    image_version: str = ""
    execution_role_arn: str = ""
    idle: IdlePolicy | None = None
    max_duration_s: int | None = None
    ingress_connectors: tuple[str, ...] = ()
    egress_connectors: tuple[str, ...] = ()
    payload: str = ""
    log_group: str = ""


@dataclass(frozen=True, slots=True)
class SandboxRecord:
    """What GetMicrovm says of one sandbox.

    `endpoint` is a host, maybe with a port, never a scheme. `max_duration_s` is 0 for a life without a cap.
    """

    id: SandboxId
    state: SandboxState
    endpoint: str
    image_arn: str
    image_version: str
    started_at: datetime
    max_duration_s: int
    terminated_at: datetime | None = None
    state_reason: str = ""
    execution_role_arn: str = ""
    idle: IdlePolicy | None = None
    ingress_connectors: tuple[str, ...] = ()
    egress_connectors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SandboxListing:
    """One row of ListMicrovms: no endpoint, no reason."""

    id: SandboxId
    state: SandboxState
    image_arn: str
    image_version: str
    started_at: datetime


@dataclass(frozen=True, slots=True)
class Image:
    """A MicroVM image; `memory_mib` is known for a single image, not in listings of the platform."""

    arn: str
    name: str
    state: str
    created_at: datetime | None = None
    updated_at: datetime | None = None
    latest_version: str = ""
    is_managed: bool = False


@dataclass(frozen=True, slots=True)
class ImageVersion:
    """One version of an image with what a launch needs to know of it."""

    arn: str
    version: str
    state: str
    status: str
    memory_mib: int = 0
    hooks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ImageBuild:
    """One build of a version; `chip` is the kind of processor it is for, `reason` why it failed."""

    id: str
    state: str
    reason: str = ""
    chip: str = ""


@dataclass(frozen=True, slots=True)
class EndpointToken:
    """Lets its holder reach the named ports of one sandbox until it expires."""

    sandbox_id: SandboxId
    ports: tuple[int, ...]
    value: str = field(repr=False)
    minted_at: datetime
    expires_at: datetime


class Phase(StrEnum):
    """How far a registry row is: LAUNCHING rows are replayed after a crash.

    UNKNOWN is the word of a newer sbx: such a row is shown, and nothing acts upon it.
    """

    LAUNCHING = "launching"
    TRACKED = "tracked"
    UNKNOWN = "unknown"

    @classmethod
    def _missing_(cls, value: object) -> Phase:
        return cls.UNKNOWN


@dataclass(frozen=True, slots=True)
class Registration:
    """A name of this home and the sandbox behind it; `id` is empty while LAUNCHING."""

    context: ContextName
    name: str
    id: SandboxId
    phase: Phase
    request: LaunchRequest
    client_token: str
    owner: str
    created_at: datetime
    endpoint: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sandbox:
    """A sandbox as a person sees it: its name here, its state there, and how old that knowledge is.

    `name` is empty for a machine of the account that no name points to (untracked). `seen_at` is when the
    control plane said `state`. `idle` and `max_duration_s` are as it was launched, None where it was without.
    """

    context: ContextName
    name: str
    id: SandboxId
    state: SandboxState
    image_arn: str
    image_version: str
    created_at: datetime
    endpoint: str = ""
    state_reason: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, object] = field(default_factory=dict)
    seen_at: datetime | None = None
    idle: IdlePolicy | None = None
    max_duration_s: int | None = None

    @property
    def has_old_guest(self) -> bool:
        """Whether its image has a guest that runs commands and keeps nothing of them."""
        return self.facts.get("guest_version") == OLD_GUEST

    @property
    def workdir(self) -> str:
        """Its work folder: as it was launched, else as every image has it."""
        return str(self.facts.get("workdir") or "/work")

    @property
    def is_tracked(self) -> bool:
        """Whether a name of this home points to it."""
        return bool(self.name)

    @property
    def image_name(self) -> str:
        """The last part of the image's ARN."""
        return self.image_arn.rsplit(":", 1)[-1]


@dataclass(frozen=True, slots=True)
class Event:
    """One change somebody made: `seq` grows by one per event of a home."""

    seq: int
    at: datetime
    context: str
    kind: str
    subject: str
    actor: str
    data: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class ExecResult:
    """A finished command. `exit_code` is 128+n when signal n ended it; a timeout keeps the partial output.

    `oom`: killed for want of memory. `truncated`: some output was lost on the way.
    """

    exit_code: int
    stdout: bytes
    stderr: bytes
    timed_out: bool = False
    signal: int = 0
    duration_s: float = 0.0
    lingering: bool = False
    truncated: bool = False
    oom: bool = False


@dataclass(frozen=True, slots=True)
class FileInfo:
    """One entry of a sandbox's file system. `kind` is file, dir, link or other; `mode` the permission bits."""

    path: str
    kind: str
    size_bytes: int
    mode: int
    modified_at: datetime
    target: str = ""
