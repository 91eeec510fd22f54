"""What a keeper hands to the guest, and how it sees that the guest is there."""

from __future__ import annotations

import json
import os
import socket
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from sbxtui.localcloud.cgroups import Cgroup
from sbxtui.localcloud.keeper_place import guest_folders
from sbxtui.localcloud.limits import MIB, Limits
from sbxtui.localcloud.runtimes.base import Runtime, Started, StartRequest, job_path
from sbxtui.localcloud.runtimes.process import free_ports
from sbxtui.localcloud.sentry_watch import SentryWatch
from sbxtui.localcloud.shown import ShownUse
from sbxtui.localcloud.spec import SandboxSpec
from sbxtui.localcloud.watchdog import Watchdog, Watched

_ANSWER_TIMEOUT_S = 1.0


@dataclass(frozen=True, slots=True)
class Ours:
    """What a keeper has for its sandbox; as `StartRequest` calls it."""

    uid: int | None
    log_fd: int
    boot_id: str


def request_of(spec: SandboxSpec, runtime: Runtime, limits: Limits, cgroup: Cgroup, ours: Ours) -> StartRequest:
    """The order to a runtime."""
    ports = {} if runtime.has_own_network else _network_ports(spec)
    return StartRequest(
        spec=spec,
        limits=limits,
        cgroup=cgroup,
        uid=ours.uid,
        gid=ours.uid,
        log_fd=ours.log_fd,
        env=guest_env(spec, runtime, limits, ports),
        network_ports=ports,
        boot_id=ours.boot_id,
    )


def _network_ports(spec: SandboxSpec) -> dict[int, int]:
    """Free ports of the host that stand for the guest's own, in a runtime that shares the host's network."""
    agent, hook = free_ports(2)
    return {spec.agent_port: agent, spec.hook_port: hook}


def guest_env(spec: SandboxSpec, runtime: Runtime, limits: Limits, ports: Mapping[int, int]) -> dict[str, str]:
    """The environment of the guest's first process: nothing of the host's."""
    env = {
        "PATH": job_path(),
        "HOME": "/home/sandbox",
        "USER": "sandbox",
        "LOGNAME": "sandbox",
        "SHELL": "/bin/bash" if Path(f"{spec.prepared.get('base', '')}/bin/bash").exists() else "/bin/sh",
        "LANG": "C.UTF-8",
        "TMPDIR": "/tmp",
    }
    if not runtime.has_own_network:
        env |= {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": str(spec.sandbox_dir / "home"),
            "SBX_JOB_HOME": str(spec.sandbox_dir / "home"),
            "TMPDIR": str(spec.sandbox_dir / "tmp"),
            "AGENTD_BIND": "127.0.0.1",
            "SBX_BRIDGE_MAP": ",".join(f"{named}={real}" for named, real in ports.items()),
        }
    env |= {**spec.env, **_libraries(spec), **runtime.guest_env()}
    env |= {
        "AGENTD_PORT": str(ports.get(spec.agent_port, spec.agent_port)),
        "AGENTD_HOOK_PORT": str(ports.get(spec.hook_port, spec.hook_port)),
        "SBX_WORKDIR": spec.workdir if runtime.has_own_network else str(spec.sandbox_dir / "work"),
        "SBX_ISOLATION": runtime.isolation,
        "SBX_LIMITS": json.dumps(
            {
                "memory_mib": limits.memory_bytes // MIB,
                "vcpus": limits.vcpus,
                "disk_mib": limits.disk_bytes // MIB,
                "pids_max": limits.pids,
                "tmpfs_mib": limits.tmp_bytes // MIB,
            }
        ),
    }
    if not runtime.has_own_network:
        env["SBX_ROOT"] = str(spec.sandbox_dir)
    return env


def _libraries(spec: SandboxSpec) -> dict[str, str]:
    """What the guest's Python needs where it was brought along; jobs get an environment of their own."""
    folder = spec.prepared.get("python_libraries")
    return {"LD_LIBRARY_PATH": folder} if folder else {}


def watchdog_of(started: Started, request: StartRequest, *, kill_sandbox: Callable[[], None]) -> Watchdog | SentryWatch:
    """Who keeps the sandbox within its limits."""
    spec = request.spec
    if started.kernel is not None:
        return SentryWatch(started.kernel, request.limits, spec.control_dir, kill_sandbox, ShownUse.of(spec))
    watched = Watched(
        root=started.root_pid,
        boot=started.boot_pid,
        limits=started.host_limits or request.limits,
        cgroup=request.cgroup,
        tmpfs_dirs=started.tmpfs_dirs,
        disk_dirs=tuple(spec.sandbox_dir / name for name in guest_folders(spec)),
        disk_views=started.disk_views,
        control_dir=spec.control_dir,
        shown=ShownUse.of(spec),
    )
    return Watchdog(watched, kill_sandbox=kill_sandbox)


def open_bridge(control_dir: Path) -> int:
    """A descriptor of the bridge's socket itself.

    The guest owns that folder and may put a link to any socket of the host there, so a link is never followed, and the
    connection goes through the descriptor that was checked.

    Raises:
        OSError: Nothing is there, or it is no socket.
    """
    descriptor = os.open(control_dir / "in.sock", os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ConnectionRefusedError(f"`{control_dir}/in.sock` is no socket")
    return descriptor


def guest_answers(control_dir: Path, port: int) -> bool:
    """Whether the bridge is there and the guest listens on `port`; asked before any foreign code runs in the
    sandbox.
    """
    try:
        descriptor = open_bridge(control_dir)
    except OSError:
        return False
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.settimeout(_ANSWER_TIMEOUT_S)
            sock.connect(f"/proc/self/fd/{descriptor}")
            sock.sendall(f"{port}\n".encode())
            return sock.recv(1) == b"+"
    except OSError:
        return False
    finally:
        os.close(descriptor)
