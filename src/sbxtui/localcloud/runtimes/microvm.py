"""A virtual machine for each sandbox, by `msb` of the `microsandbox` package: a Linux kernel of its own on KVM.

The sandbox's root is a folder of ours; what it sees of the host and where it may write is shared with it by virtiofs.
Its network is none at all: the bridge inside calls the host over vsock, and a *ferry* beside it lets clients in.
"""

from __future__ import annotations

import errno
import json
import math
import os
import shlex
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from sbxtui.core.errors import RuntimeUnavailable
from sbxtui.localcloud.limits import MIB, Limits
from sbxtui.localcloud.runtimes.base import Interpreter, Probe, Started, StartRequest, guest_command
from sbxtui.localcloud.runtimes.guard import first_child, start_guard
from sbxtui.localcloud.runtimes.gvisor_bundle import host_binds
from sbxtui.localcloud.runtimes.launch import Launch, launch
from sbxtui.localcloud.runtimes.skeleton import hand_over, write_skeleton
from sbxtui.localcloud.runtimes.system_view import GUEST_UID, HOME, TREE, etc_of_ours, program_links, system_links
from sbxtui.localcloud.shown import DISK_USED, ShownUse

KVM = Path("/dev/kvm")
_START_TIMEOUT_S = 10.0
# What the monitor takes beside the machine's memory, and its threads.
_MONITOR_BYTES, _HOST_TASKS = 256 * MIB, 4096
# A program with this in its command line is never taken for a job: the machine ends with its monitor.
_NAME = "sbxboot"
_BRIDGE_PORT = 5000
_LAUNCH = "/opt/sbx/launch"
# Of what is only looked at: as it is, without attributes that would be written beside it.
SHOWN = ("ro", "stat-virt=off")


@dataclass(frozen=True, slots=True)
class MicroVm:
    """Needs the package, KVM and a machine that boots in time. Never chosen by itself."""

    id: str = "microvm"
    isolation: str = "microVM (KVM, libkrun)"
    has_own_network: bool = True
    needs_dropped_uid: bool = True
    has_own_kernel: bool = False

    def host_limits(self, limits: Limits) -> Limits:
        """What the host holds it to: the machine's memory is the sandbox's, and its monitor needs some more."""
        return replace(limits, memory_bytes=limits.memory_bytes + _MONITOR_BYTES, pids=_HOST_TASKS)

    def guest_env(self) -> dict[str, str]:
        """Nothing."""
        return {}

    def probe(self, copies_dir: Path) -> Probe:
        """See `Runtime.probe`: every gate, and a boot."""
        # Imported here: a keeper starts sandboxes and asks nothing.
        from sbxtui.localcloud.runtimes.microvm_probe import probe

        return probe(copies_dir)

    def start(self, request: StartRequest) -> Started:
        """See `Runtime.start`. A guard stands between: what `msb` starts does not end with the keeper by itself."""
        spec = request.spec
        folder = spec.sandbox_dir / "microvm"
        _write_root(folder / "root", request)
        # Closed to all but its monitor: the environment of the guest is in there.
        hand_over(folder, request.uid)
        folder.chmod(0o700)
        program, uid = spec.prepared["program"], request.uid
        monitor = Monitor(program, spec.kernel_dir, folder / "state", uid, group_of_kvm(uid))
        monitor.make_folders()
        _start_ferry(monitor, request)
        guard = start_guard(lambda: _start_machine(monitor, folder / "root", request), keep_fds=(request.log_fd,))
        return Started(guard, first_child(guard), kill_pids=(), host_limits=self.host_limits(request.limits))


@dataclass(frozen=True, slots=True)
class Monitor:
    """One `msb`. All it has on the host is in `home`, whose path must be short, and in `state`, which must be on a disk
    that keeps attributes of users. `uid`, `gid` as in `StartRequest`.
    """

    program: str
    home: Path
    state: Path
    uid: int | None
    gid: int | None

    @property
    def calls(self) -> Path:
        """Where the machine's calls to its host come in."""
        return self.home / "calls"

    def make_folders(self) -> None:
        """Both, private and empty."""
        for folder in (self.home, self.state):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(mode=0o700, parents=True)
            if self.uid is not None and self.gid is not None:
                os.chown(folder, self.uid, self.gid)
        config = self.home / "config.json"
        config.write_text(json.dumps({"paths": {"sandboxes": str(self.state)}}))
        config.chmod(0o644)

    @property
    def env(self) -> dict[str, str]:
        """What it runs with: nothing of the host's."""
        return {"HOME": str(self.home), "MSB_HOME": str(self.home), "PATH": "/usr/bin:/bin"}

    def argv(self, *words: str) -> list[str]:
        """A machine that ends with the command it runs, and shares with its host what the words name."""
        return ["msb", "run", "--quiet", "--no-tty", "--no-stdin", "--no-net", "--security=restricted", *words]


def host_python(interpreter: Interpreter) -> str:
    """The sandbox's Python as the host sees it: whoever a sandbox runs as may run it."""
    return interpreter.source + interpreter.executable.removeprefix(interpreter.prefix)


def group_of_kvm(uid: int | None) -> int | None:
    """The group of who runs the monitor: the one that may use KVM, for a user that is a sandbox's alone.

    Raises:
        OSError: There is no such group but root's.
    """
    if uid is None:
        return None
    info = KVM.stat()
    if not info.st_gid or not info.st_mode & 0o060 == 0o060:
        raise PermissionError(errno.EACCES, f"{KVM} has no group of its own that may use it")
    return info.st_gid


def shared(binds: Mapping[str, str], *options: str) -> list[str]:
    """Words that share folders and files of the host, each at its path inside.

    Raises:
        RuntimeUnavailable: A path cannot be written in such a word.
    """
    words = []
    for path, source in binds.items():
        if ":" in source:
            raise RuntimeUnavailable(
                f"`{source}` cannot be shared with a virtual machine", hint="use paths without `:`"
            )
        kind = "dir" if Path(source).is_dir() else "file"
        words.append(f"--mount-{kind}={source}:{path}:{','.join(('nosuid', 'nodev', *options))}")
    return words


def _binds(request: StartRequest) -> dict[str, str]:
    spec = request.spec
    interpreter = Interpreter.from_map(spec.prepared)
    shown = {DISK_USED: ShownUse.of(spec).binds[DISK_USED]}
    return {**host_binds(interpreter, spec.prepared["image_tree"], spec.prepared.get("base", "")), **shown}


def _write_root(root: Path, request: StartRequest) -> None:
    spec = request.spec
    base = spec.prepared.get("base", "")
    python = spec.prepared["python"]
    write_skeleton(
        root,
        folders=(spec.workdir, "/tmp", "/run", "/proc", "/sys", "/dev", HOME, "/opt/sbx/bin"),
        binds=_binds(request),
        texts={**etc_of_ours(spec.hostname, base), _LAUNCH: _launch_script(request)},
        links={**system_links(base), **program_links(python)},
    )
    (root / _LAUNCH[1:]).chmod(0o755)


def _launch_script(request: StartRequest) -> str:
    """Its environment is in a file, for command lines are seen by everybody on the host."""
    spec = request.spec
    ceiling = request.limits.pids_ceiling
    command = guest_command(spec.prepared["python"], TREE, bridge_socket=f"vsock:{_BRIDGE_PORT}", nproc=ceiling)
    words = ["exec", "env", "-i", *(f"{name}={value}" for name, value in request.env.items()), *command]
    # `msb` would keep in memory whatever is said, until the end.
    return f"#!/bin/sh\n{shlex.join(words)} >/dev/null 2>&1\n"


def _start_ferry(monitor: Monitor, request: StartRequest) -> None:
    """It ends with the keeper; the machine can call when this returns."""
    spec = request.spec
    python, ferry = host_python(Interpreter.from_map(spec.prepared)), f"{spec.prepared['image_tree']}/sbxguest/ferry.py"
    command = [python, "-I", "-S", "-B", ferry, str(spec.bridge_socket), str(monitor.calls)]
    launch(Launch(python, command, {}, request.log_fd, monitor.uid, monitor.gid, lambda: None))
    deadline = time.monotonic() + _START_TIMEOUT_S
    while not monitor.calls.exists():
        if time.monotonic() > deadline:
            raise RuntimeUnavailable("nobody takes the calls of the virtual machine", hint="see the sandbox's log")
        time.sleep(0.002)


def _start_machine(monitor: Monitor, root: Path, request: StartRequest) -> int:
    words = [*_machine_words(monitor, request), str(root), "--", _LAUNCH]
    own = (request.log_fd, monitor.uid, monitor.gid)
    return launch(Launch(monitor.program, monitor.argv(*words), monitor.env, *own, request.cgroup.join))


def _machine_words(monitor: Monitor, request: StartRequest) -> list[str]:
    spec, limits = request.spec, request.limits
    own = {spec.workdir: str(spec.sandbox_dir / "work"), HOME: str(spec.sandbox_dir / "home")}
    quota = f"quota={limits.disk_bytes // MIB}M"
    return [
        f"--name={_NAME}-{spec.sandbox_id}",
        f"--hostname={spec.hostname}",
        f"--user={GUEST_UID}:{GUEST_UID}",
        f"--cpus={math.ceil(limits.vcpus)}",
        f"--memory={limits.memory_bytes // MIB}M",
        f"--workdir={spec.workdir}",
        f"--vsock={monitor.calls}:{_BRIDGE_PORT}",
        f"--tmpfs=/tmp:{limits.tmp_bytes // MIB}",
        *shared(_binds(request), *SHOWN),
        *shared(own, f"uid={GUEST_UID},gid={GUEST_UID}", quota),
    ]
