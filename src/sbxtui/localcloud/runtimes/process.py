"""No isolation at all: the guest as a plain process with folders of its own. Only by explicit choice."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path

from sbxtui.localcloud.limits import Limits, apply_process_limits
from sbxtui.localcloud.runtimes.base import Probe, Started, StartRequest, guest_command
from sbxtui.localcloud.runtimes.guard import first_child, start_guard
from sbxtui.localcloud.runtimes.launch import Launch, launch


@dataclass(frozen=True, slots=True)
class PlainProcess:
    """Works everywhere; protects nothing. Jobs see the user's files, processes and network."""

    id: str = "process"
    isolation: str = "process — NOT isolated"
    has_own_network: bool = False
    needs_dropped_uid: bool = False
    has_own_kernel: bool = False

    def host_limits(self, limits: Limits) -> Limits:
        """The sandbox's own: its processes are the host's."""
        return limits

    def guest_env(self) -> dict[str, str]:
        """Nothing."""
        return {}

    def probe(self, copies_dir: Path) -> Probe:
        """There is nothing to try."""
        del copies_dir
        return Probe(True, version="", path="")

    def start(self, request: StartRequest) -> Started:
        """See `Runtime.start`. A guard process stands between: it ends the guest's processes when the keeper dies."""
        spec = request.spec
        command = guest_command(
            spec.prepared["host_python"],
            spec.prepared["image_tree"],
            bridge_socket=str(spec.bridge_socket),
            nproc=0,
        )
        own = (request.uid, request.gid)
        order = Launch(command[0], command, request.env, request.log_fd, *own, lambda: _prepare(request))
        pid = start_guard(lambda: launch(order), keep_fds=(order.log_fd,))
        return Started(root_pid=pid, boot_pid=first_child(pid), kill_pids=())


def _prepare(request: StartRequest) -> None:
    request.cgroup.join()
    groups = request.cgroup.dirs
    apply_process_limits(request.limits, has_memory_cgroup="memory" in groups, has_cpu_cgroup="cpu" in groups)


def free_ports(count: int) -> list[int]:
    """Loopback ports nobody listens on now."""
    socks = [socket.socket(socket.AF_INET, socket.SOCK_STREAM) for _ in range(count)]
    try:
        for sock in socks:
            sock.bind(("127.0.0.1", 0))
        return [int(sock.getsockname()[1]) for sock in socks]
    finally:
        for sock in socks:
            sock.close()
