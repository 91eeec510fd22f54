"""What a runtime is: how one sandbox's guest is started, and what that start isolates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from sbxtui.localcloud.cgroups import Cgroup
from sbxtui.localcloud.limits import Limits
from sbxtui.localcloud.runtimes.runsc import Runsc
from sbxtui.localcloud.spec import SandboxSpec


@dataclass(frozen=True, slots=True)
class Probe:
    """Whether a runtime works here, for this user. `why_not` is one line with a remedy, empty when `ok`; `is_there`
    tells one that was found and does not work from one that is not installed.

    `how` goes to `StartRequest.spec.prepared` beside the path: what the probe settled for this machine.
    """

    ok: bool
    version: str = ""
    path: str = ""
    why_not: str = ""
    is_there: bool = True
    how: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python as the sandbox sees it.

    `prefix` is a folder that must be there at its own path, empty for what `/usr` holds already; `source` is what
    the host puts there: the folder itself or a copy that everybody may read. `libraries` is a folder, as the sandbox
    sees it, of those that the system in there may lack.
    """

    executable: str
    prefix: str = ""
    source: str = ""
    libraries: str = ""

    def to_map(self) -> dict[str, str]:
        """For the `prepared` map of a spec."""
        told = {"python": self.executable, "python_prefix": self.prefix, "python_source": self.source}
        return told | ({"python_libraries": self.libraries} if self.libraries else {})

    @classmethod
    def from_map(cls, values: Mapping[str, str]) -> Interpreter:
        """Undo `to_map`."""
        rest = (values.get(f"python_{name}", "") for name in ("prefix", "source", "libraries"))
        return cls(values["python"], *rest)


@dataclass(frozen=True, slots=True)
class StartRequest:
    """One sandbox to start. `uid`/`gid` are whom it runs as; None leaves the keeper's own.

    With a `saved_dir` the sandbox goes on from there. `log_fd` takes stdout and stderr. `boot_id` is what a kernel of
    its own calls this start, as a UUID.
    `network_ports` maps the ports the guest's contract names to those really used.
    """

    spec: SandboxSpec
    limits: Limits
    cgroup: Cgroup
    uid: int | None
    gid: int | None
    log_fd: int
    env: Mapping[str, str]
    network_ports: Mapping[int, int] = field(default_factory=dict)
    saved_dir: Path | None = None
    boot_id: str = ""


@dataclass(frozen=True, slots=True)
class Started:
    """A started sandbox. `root_pid` is the keeper's child and is reaped by it; `boot_pid` is the guest's first
    process, which ends cleanly on SIGTERM.

    `disk_views` are where file systems of its own are that take the disk's place, as the host reaches them.
    `kill_pids` end the whole sandbox when they get SIGKILL, in this order.

    With a kernel of its own the host sees no process of the guest: `boot_pid` is 0, `kernel` is how it is reached. With
    a whole machine of its own, `boot_pid` is that machine, and `host_limits` what the host holds it to.
    """

    root_pid: int
    boot_pid: int
    kill_pids: Sequence[int]
    tmpfs_dirs: tuple[str, ...] = ()
    disk_views: tuple[str, ...] = ()
    kernel: OwnKernel | None = None
    host_limits: Limits | None = None


@dataclass(frozen=True, slots=True)
class OwnKernel:
    """A sandbox's own kernel: its process on the host, the calls it takes, and where the files of its disks lie."""

    pid: int
    runsc: Runsc
    disk_dirs: tuple[Path, ...]


class Runtime(Protocol):
    """An isolation runtime. Values without state: probing and starting touch only what their arguments name."""

    @property
    def id(self) -> str:
        """The word a spec chooses it by."""
        ...

    @property
    def isolation(self) -> str:
        """What people are told; never more than is true."""
        ...

    @property
    def has_own_network(self) -> bool:
        """Whether the sandbox's ports are its own, so that several may listen on one number."""
        ...

    @property
    def needs_dropped_uid(self) -> bool:
        """Whether it must not be started as root, because root in it would be root of the machine."""
        ...

    @property
    def has_own_kernel(self) -> bool:
        """Whether the host sees none of the sandbox's processes."""
        ...

    def host_limits(self, limits: Limits) -> Limits:
        """What the host's control groups shall hold for a sandbox with these limits."""
        ...

    def guest_env(self) -> Mapping[str, str]:
        """What the guest must know of the runtime."""
        ...

    def probe(self, copies_dir: Path) -> Probe:
        """Try it for real, as this user; a good answer is kept by binary and kernel. `copies_dir` as in
        `choose_runtime`.
        """
        ...

    def start(self, request: StartRequest) -> Started:
        """Start the guest under the calling process, which must have one thread.

        Raises:
            RuntimeUnavailable: It did not come up; nothing is left running.
        """
        ...


def job_path() -> str:
    """PATH inside a sandbox: the image's own folder comes last, so that it only fills gaps."""
    return "/home/sandbox/.local/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/sbx/bin"


def guest_command(python: str, tree: str, *, bridge_socket: str, nproc: int) -> list[str]:
    """The first program of every sandbox.

    Args:
        python: Interpreter as the sandbox sees it.
        tree: Image tree as the sandbox sees it.
        bridge_socket: Where the bridge shall listen.
        nproc: RLIMIT_NPROC set inside, or 0 for none.
    """
    return [python, "-I", "-S", "-B", f"{tree}/sbxboot.py", str(nproc), bridge_socket]


def readable_path(path: Path) -> bool:
    """Whether anybody may traverse to `path` and read it."""
    try:
        if not path.stat().st_mode & 0o004:
            return False
        return all(parent.stat().st_mode & 0o001 for parent in path.resolve().parents)
    except OSError:
        return False
