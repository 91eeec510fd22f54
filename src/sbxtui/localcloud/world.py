"""What every sandbox of one home shares: folders, records, clock and the way to its keepers."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sbxtui.core.errors import UsageError
from sbxtui.core.names import check_name
from sbxtui.localcloud.account import Account
from sbxtui.localcloud.catalog import AGENT_PORT, HOOK_PORT, Catalog, CatalogImage
from sbxtui.localcloud.egress.variables import egress_env
from sbxtui.localcloud.program import GUEST_HOOK_PORT, GUEST_PORT
from sbxtui.localcloud.records import Record, RecordStore
from sbxtui.localcloud.runtimes.choose import find_runtime
from sbxtui.localcloud.spec import SandboxSpec


async def nothing_before() -> None:
    """A resume begins at once."""


@dataclass(frozen=True, slots=True)
class World:
    """Settings of the running local cloud. `time_scale` divides every lifecycle window; without a default
    maximum duration, sandboxes that name none live on. What builds of images made is
    in `builds_dir`, the roots of bases in `bases_dir`; `check_egress` raises for a connector no launch can have, and
    each resume begins with `before_resume`.
    """

    records: RecordStore
    catalog: Catalog
    trees_dir: Path
    sockets_dir: Path
    time_scale: float
    memory_quota_mib: int
    runtime: str
    default_max_duration_s: int | None = None
    builds_dir: Path = Path()
    bases_dir: Path = Path()
    check_egress: Callable[[str], None] = lambda arn: None
    account: Account = field(default_factory=lambda: Account(None))
    before_resume: Callable[[], Awaitable[None]] = nothing_before

    def sandbox_dir(self, sandbox_id: str) -> Path:
        """The sandbox's own folder."""
        return self.trees_dir / sandbox_id

    def keeper_socket(self, sandbox_id: str) -> Path:
        """Where its keeper listens; short, because socket paths are."""
        return self.sockets_dir / f"{short_key(sandbox_id)}.k"

    def control_dir(self, sandbox_id: str) -> Path:
        """The folder of its bridge's socket."""
        return self.sockets_dir / short_key(sandbox_id)

    def spec_of(self, record: Record) -> SandboxSpec:
        """The order to its keeper; the same record always gives the same one."""
        image = CatalogImage(record.image_name, record.image_arn, record.memory_mib)
        has_program = _has_program(record)
        return SandboxSpec(
            sandbox_id=record.id,
            image_name=record.image_name,
            memory_mib=image.memory_mib,
            vcpus=image.vcpus,
            disk_mib=image.disk_mib,
            pids_max=image.pids_max,
            tmpfs_mib=image.tmpfs_mib,
            sandbox_dir=self.sandbox_dir(record.id),
            control_dir=self.control_dir(record.id),
            keeper_socket=self.keeper_socket(record.id),
            runtime=record.runtime,
            env=self._env_of(record),
            agent_port=agent_port_of(record),
            hook_port=GUEST_HOOK_PORT if has_program else HOOK_PORT,
            hostname=_name_in(record.payload) or "sandbox",
            base_dir=self.bases_dir / record.program.base if record.program and record.program.base else None,
        )

    def _env_of(self, record: Record) -> Mapping[str, str]:
        return {
            **(record.program.env if record.program is not None and not record.program.argv else {}),
            **image_env(record.image_name, record.image_arn, record.image_version, self.catalog.region),
            # Every image of the catalog has its hooks: the guest listens for them, and serves only after /run.
            "SBX_HOOKS": "1",
            **(egress_env() if find_runtime(record.runtime).has_own_network else {}),
        }


def agent_port_of(record: Record) -> int:
    """Where the bundled guest of a sandbox listens: a program of the image's own has the usual port."""
    return GUEST_PORT if _has_program(record) else AGENT_PORT


def _has_program(record: Record) -> bool:
    return record.program is not None and bool(record.program.argv)


def image_env(name: str, arn: str, version: str, region: str) -> dict[str, str]:
    """What the platform tells a sandbox of its image."""
    return {
        "AWS_LAMBDA_MICROVM_IMAGE_NAME": name,
        "AWS_LAMBDA_MICROVM_IMAGE_ARN": arn,
        "AWS_LAMBDA_MICROVM_IMAGE_VERSION": version,
        "AWS_REGION": region,
    }


def _name_in(payload: str) -> str:
    """The name a sandbox of ours is launched with. Anybody may launch one with a payload of their own."""
    try:
        return check_name(json.loads(payload)["name"])
    except (ValueError, TypeError, KeyError, RecursionError, UsageError):
        return ""


def has_living_keeper(keeper_socket: Path) -> bool:
    """Whether a keeper holds its lock, even one too busy to answer: its sandbox must not be taken for gone."""
    try:
        with keeper_socket.with_name(keeper_socket.name + ".lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def short_key(sandbox_id: str) -> str:
    """64 bits of a sandbox's id, for paths that must be short."""
    return sandbox_id.removeprefix("microvm-").replace("-", "")[:16]
