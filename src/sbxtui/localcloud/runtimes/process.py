"""No isolation at all: the guest as a plain process with folders of its own. Only by explicit choice."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from sbxtui.core.errors import RuntimeUnavailable
from sbxtui.localcloud.keeper_processes import child_pids, descendants, send_signal
from sbxtui.localcloud.limits import apply_process_limits
from sbxtui.localcloud.runtimes.base import Probe, Started, StartRequest, guest_command
from sbxtui.localcloud.runtimes.launch import Launch, become_subreaper, launch

_START_TIMEOUT_S = 10.0
_GONE_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class PlainProcess:
    """Works everywhere; protects nothing. Jobs see the user's files, processes and network."""

    id: str = "process"
    isolation: str = "process — NOT isolated"
    has_own_network: bool = False
    needs_dropped_uid: bool = False

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
        alive_read, _alive_write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(_alive_write)
            _guard(alive_read, order)
        os.close(alive_read)
        # `_alive_write` stays open on purpose: the guard sees its end when this process dies.
        return Started(root_pid=pid, boot_pid=_first_child(pid), kill_pids=())


def _prepare(request: StartRequest) -> None:
    request.cgroup.join()
    groups = request.cgroup.dirs
    apply_process_limits(request.limits, has_memory_cgroup="memory" in groups, has_cpu_cgroup="cpu" in groups)


def _first_child(guard: int) -> int:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline:
        if (children := child_pids(guard)) != []:
            return children[0]
        time.sleep(0.001)
    raise RuntimeUnavailable("the guest's process did not start")


def _guard(alive: int, order: Launch) -> NoReturn:
    """Parent of the guest's first process; ends with it, and takes all its processes along."""
    code = 1
    try:
        # Copies of the keeper's sockets would answer for a dead keeper.
        for descriptor in range(3, 1024):
            if descriptor not in (alive, order.log_fd):
                with contextlib.suppress(OSError):
                    os.close(descriptor)
        become_subreaper()
        code = _run(alive, order)
    finally:
        os._exit(code)


def _run(alive: int, order: Launch) -> int:
    wakeup_read, wakeup_write = os.pipe()
    os.set_blocking(wakeup_write, False)
    signal.set_wakeup_fd(wakeup_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    init = launch(order)
    status: int | None = None
    while status is None:
        ready, _, _ = select.select([alive, wakeup_read], [], [])
        if wakeup_read in ready:
            os.read(wakeup_read, 4096)
        status = _reap(init)
        if alive in ready:
            break
    _end_all(lambda: _reap(init))
    return _code(status) if status is not None else 128 + signal.SIGKILL


def _reap(init: int) -> int | None:
    """Reap everything that ended; the wait status of `init` if it was among them."""
    found: int | None = None
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            if pid == init:
                found = status
    return found


def _end_all(reap: Callable[[], object]) -> None:
    deadline = time.monotonic() + _GONE_TIMEOUT_S
    while (left := descendants(os.getpid())) and time.monotonic() < deadline:
        send_signal(left, signal.SIGKILL)
        reap()
        time.sleep(0.002)


def _code(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return 128 - code if code < 0 else code


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
