"""What a sandbox of the local cloud is made of: the order given to a keeper, and what a keeper tells back. JSON on
disk.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from sbxtui.core.errors import UsageError
from sbxtui.core.kills import Kill

MIN_MEMORY_MIB = 64
MIN_PIDS = 16
# sun_path holds 108 bytes with its end; the bridge binds a temporary name next to the last one.
MAX_SOCKET_PATH_BYTES = 96


@dataclass(frozen=True, slots=True)
class SandboxSpec:
    """One sandbox, as its keeper builds it.

    Args:
        sandbox_dir: The sandbox's own folder below `home.trees_dir`; holds `work`, `home`, `spec.json`,
            `keeper.log`, `exit.json`.
        control_dir: A short path below `home.socket_dir`, bound to `/run/sbx` inside; the guest writes there, so
            nothing in it is trusted. The bridge listens on its `in.sock`.
        keeper_socket: The keeper's control socket, outside `control_dir`; `.lock` beside it is held while the keeper
            lives.
        memory_mib: RAM of all jobs and the guest together.
        vcpus: Processors' worth of time; fractions need a cgroup.
        disk_mib: What `work` and `home` may take together.
        pids_max: Tasks (threads) of jobs and guest together.
        tmpfs_mib: Size of `/tmp`; never more than half of the memory is granted.
        env: Environment of the guest; keys the guest's contract uses are set by the keeper.
        runtime: A runtime id as `runtimes.choose` returned it.
        hostname: What the sandbox takes itself for, where it has names of its own.
        job_uid: Runs jobs as this uid in images that hold several; None: as the guest.
        images_dir: Where image trees are kept; None: `.images` beside `sandbox_dir`.
        is_build: A step of a build is done in it: all of its root can be written, and its user is root.
        prepared: Filled in by `start_keeper`: the image tree, interpreter and programs this sandbox is started with.
    """

    sandbox_id: str
    image_name: str
    memory_mib: int
    vcpus: float
    disk_mib: int
    pids_max: int
    tmpfs_mib: int
    sandbox_dir: Path
    control_dir: Path
    keeper_socket: Path
    runtime: str
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    agent_port: int = 8080
    hook_port: int = 9000
    workdir: str = "/work"
    hostname: str = "sandbox"
    job_uid: int | None = None
    images_dir: Path | None = None
    base_dir: Path | None = None
    is_build: bool = False
    prepared: Mapping[str, str] = field(default_factory=dict)

    @property
    def exit_file(self) -> Path:
        """Written once, atomically, when the sandbox has ended."""
        return self.sandbox_dir / "exit.json"

    @property
    def log_file(self) -> Path:
        """The keeper's and the guest's own output."""
        return self.sandbox_dir / "keeper.log"

    @property
    def spec_file(self) -> Path:
        """This value as JSON (0600: `env` may hold secrets)."""
        return self.sandbox_dir / "spec.json"

    @property
    def lock_file(self) -> Path:
        """Held by the one keeper of this sandbox."""
        return self.keeper_socket.with_name(self.keeper_socket.name + ".lock")

    @property
    def bridge_socket(self) -> Path:
        """Where the guest's bridge listens, as the host sees it."""
        return self.control_dir / "in.sock"

    @property
    def kernel_dir(self) -> Path:
        """The state of gVisor's kernel, or of a virtual machine. Paths of sockets there must be short."""
        return self.control_dir.with_name(self.control_dir.name + ".r")

    @property
    def image_tree_parent(self) -> Path:
        """The folder of the shared, immutable guest copies."""
        return self.images_dir or self.sandbox_dir.parent / ".images"

    def check(self) -> None:
        """Refuse what no keeper could build.

        Raises:
            UsageError: A size is too small, a path is relative, or a socket path is longer than the system takes.
        """
        if (
            self.memory_mib < MIN_MEMORY_MIB
            or self.pids_max < MIN_PIDS
            or self.vcpus <= 0
            or self.disk_mib < 1
            or self.tmpfs_mib < 1
        ):
            raise UsageError(
                f"sandbox `{self.sandbox_id}` cannot be that small",
                hint=f"give at least {MIN_MEMORY_MIB} MiB of memory, {MIN_PIDS} pids, and some cpu, disk and tmpfs",
            )
        for path in (self.sandbox_dir, self.control_dir, self.keeper_socket):
            if not path.is_absolute():
                raise UsageError(f"sandbox `{self.sandbox_id}` was given the relative path `{path}`")
        for path in (self.bridge_socket, self.keeper_socket):
            if len(os.fsencode(path)) > MAX_SOCKET_PATH_BYTES:
                raise UsageError(f"`{path}` is too long for a unix socket", hint="choose a shorter SBX_HOME or TMPDIR")

    def to_json(self) -> str:
        """The spec as one JSON document."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        values["env"], values["prepared"] = dict(self.env), dict(self.prepared)
        return json.dumps(values, default=str)

    @classmethod
    def from_json(cls, text: str) -> SandboxSpec:
        """Undo `to_json`; unknown keys of a newer version are ignored.

        Raises:
            ValueError: It is no such document.
        """
        values = _known(cls, json.loads(text))
        try:
            for name in ("sandbox_dir", "control_dir", "keeper_socket"):
                values[name] = Path(values[name])
            for name in ("images_dir", "base_dir"):
                values[name] = Path(values[name]) if values.get(name) else None
            return cls(**values)
        except (KeyError, TypeError) as exc:
            raise ValueError(f"no sandbox spec: {exc}") from exc


class KeeperState(StrEnum):
    """STARTING ends when the guest's bridge answers."""

    STARTING = "starting"
    RUNNING = "running"
    FROZEN = "frozen"
    EXITED = "exited"


@dataclass(frozen=True, slots=True)
class ExitInfo:
    """How a sandbox ended. `exit_code` is 128+n when signal n ended the guest's main process.

    `reason` is `terminated` (asked for), `exited` (the guest ended itself), `start-failed`, `limit` (the guest
    itself had to be killed for one), or `keeper-died`. `limit` says in words which limit that was.
    """

    exit_code: int
    signal: int
    reason: str
    at: str = ""
    limit: str = ""


@dataclass(frozen=True, slots=True)
class KeeperStatus:
    """A sandbox as its keeper sees it now. `kills` holds the last 64, oldest first; `kill_count` counts all.

    `begun_from` says what it was started from (`cold`, `saved`, `copy`, `golden`); one that is cold with a `golden_key`
    would have begun with the golden image of that key, had there been one.
    """

    state: KeeperState
    pid: int
    exit: ExitInfo | None
    memory_bytes: int
    disk_bytes: int
    pids: int
    kills: tuple[Kill, ...]
    kill_count: int
    runtime: str
    isolation: str
    limits: Mapping[str, str]
    begun_from: str = ""
    golden_key: str = ""

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe."""
        return dataclasses.asdict(self)

    @classmethod
    def ended(cls, how: ExitInfo) -> KeeperStatus:
        """What is left to say of a sandbox whose keeper is gone."""
        return cls(KeeperState.EXITED, 0, how, 0, 0, 0, (), 0, "", "", {})

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> KeeperStatus:
        """Undo `to_dict`."""
        values = _known(cls, raw)
        values["state"] = KeeperState(values["state"])
        values["exit"] = ExitInfo(**_known(ExitInfo, values["exit"])) if values["exit"] else None
        values["kills"] = tuple(Kill(**_known(Kill, kill)) for kill in values["kills"])
        return cls(**values)


def read_exit(sandbox_dir: Path) -> ExitInfo | None:
    """How the sandbox of this folder ended, or None if nobody wrote it down (it runs, or its keeper was killed)."""
    try:
        raw = json.loads((sandbox_dir / "exit.json").read_text())
    except (OSError, ValueError):
        return None
    return ExitInfo(**_known(ExitInfo, raw))


def write_private(path: Path, text: str, *, is_durable: bool = False) -> None:
    """Write a 0600 file atomically; readers see the old or the new whole text.

    Only with `is_durable` it is forced to disk, which takes longer than a keeper's start: most of what is written tells
    of processes, which end with the machine anyhow.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
            if is_durable:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
        if is_durable:
            _sync_folder(path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _sync_folder(folder: Path) -> None:
    """Without it a power cut may take the new name back."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _known(cls: Any, raw: Mapping[str, Any]) -> dict[str, Any]:
    names = {f.name for f in dataclasses.fields(cls)}
    return {key: value for key, value in raw.items() if key in names}
