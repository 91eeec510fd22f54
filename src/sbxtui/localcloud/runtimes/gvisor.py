"""gVisor: the sandbox's system calls are answered by a kernel of its own in user space, not by the host's."""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import dataclass, replace
from pathlib import Path

from sbxtui.core.errors import RuntimeUnavailable
from sbxtui.localcloud.limits import MIB, Limits, processors_for
from sbxtui.localcloud.runtimes.base import Interpreter, OwnKernel, Probe, Started, StartRequest, guest_command
from sbxtui.localcloud.runtimes.guard import start_guard
from sbxtui.localcloud.runtimes.gvisor_bundle import Bundle, host_binds
from sbxtui.localcloud.runtimes.runsc import CONTAINER, Runsc, wait_for
from sbxtui.localcloud.runtimes.system_view import CONTROL, GUEST_UID, TREE, program_links
from sbxtui.localcloud.shown import ShownUse

_START_TIMEOUT_S = 20.0
# runsc is a Go program: threads it cannot have end it, and all of the sandbox.
_HOST_TASKS = 4096
_KERNEL_BYTES = 256 * MIB


@dataclass(frozen=True, slots=True)
class GVisor:
    """Needs user namespaces and a runsc that passes the probe. Always run as somebody who is not root."""

    id: str = "gvisor"
    isolation: str = "gVisor (user-space kernel)"
    has_own_network: bool = True
    needs_dropped_uid: bool = True
    has_own_kernel: bool = True

    def probe(self, copies_dir: Path) -> Probe:
        """Start it eight times as sandboxes are started; the answer is kept by binary and kernel."""
        # Imported here: a keeper starts sandboxes and asks nothing.
        from sbxtui.localcloud.runtimes.gvisor_probe import probe

        return probe(copies_dir)

    def host_limits(self, limits: Limits) -> Limits:
        """What the host's control groups hold: more than the sandbox gets, as its kernel lives in there as well."""
        memory = 2 * limits.memory_bytes + _KERNEL_BYTES
        return replace(limits, memory_bytes=memory, pids=_HOST_TASKS)

    def guest_env(self) -> dict[str, str]:
        """What the guest must know of it."""
        return {"SBX_OWN_KERNEL": "1", "SBX_JOB_UID": str(GUEST_UID)}

    def start(self, request: StartRequest) -> Started:
        """See `Runtime.start`. A guard stands between: runsc's processes do not end with their parent by themselves."""
        bundle = bundle_of(request)
        runsc = runsc_of(request, bundle)
        # The files of its disk are in what was saved; runsc makes the one they lie in anew.
        shutil.rmtree(bundle.folder, ignore_errors=True)
        bundle.write(owner=request.uid)
        make_state_dir(runsc)
        options = (f"--bundle={bundle.folder}", f"--pid-file={runsc.pid_file}", "-detach", CONTAINER)
        words: tuple[str, ...] = ("run", *options)
        if request.saved_dir is not None:
            words = ("restore", f"--image-path={request.saved_dir}", *options)
        guard = start_guard(lambda: _begin(runsc, request, words), keep_fds=(request.log_fd,))
        sentry = _wait_for_sentry(guard, runsc)
        return Started(
            root_pid=guard,
            boot_pid=0,
            kill_pids=(sentry, guard),
            kernel=OwnKernel(sentry, runsc, (bundle.root_dir, *bundle.disks.values())),
        )


def bundle_of(request: StartRequest) -> Bundle:
    """The folder this sandbox is started from."""
    spec, limits = request.spec, request.limits
    interpreter = Interpreter.from_map(spec.prepared)
    python = interpreter.executable
    return Bundle(
        folder=spec.sandbox_dir / "gvisor",
        command=guest_command(python, TREE, bridge_socket=f"{CONTROL}/in.sock", nproc=0),
        env=request.env,
        uid=os.geteuid() if request.uid is None else request.uid,
        gid=os.getegid() if request.gid is None else request.gid,
        tmp_bytes=limits.tmp_bytes,
        shm_bytes=limits.shm_bytes,
        address_bytes=2 * limits.memory_bytes,
        file_bytes=limits.disk_bytes,
        disk_bytes=limits.disk_bytes,
        workdir=spec.workdir,
        hostname=spec.hostname,
        control_dir=spec.control_dir,
        binds=host_binds(interpreter, spec.prepared["image_tree"], spec.prepared.get("base", "")),
        base=spec.prepared.get("base", ""),
        boot_id=request.boot_id,
        shown=ShownUse.of(spec).binds,
        links=program_links(python),
    )


def runsc_of(request: StartRequest, bundle: Bundle) -> Runsc:
    """The runsc of this sandbox."""
    spec = request.spec
    program, platform = spec.prepared["program"], spec.prepared["platform"]
    return Runsc(program, platform, spec.kernel_dir, request.log_fd, request.uid, request.gid, bundle.tools_dir)


def make_state_dir(runsc: Runsc) -> None:
    """An empty private folder for runsc."""
    shutil.rmtree(runsc.state_dir, ignore_errors=True)
    runsc.state_dir.mkdir(mode=0o700, parents=True)
    if runsc.uid is not None and runsc.gid is not None:
        os.chown(runsc.state_dir, runsc.uid, runsc.gid)


def _begin(runsc: Runsc, request: StartRequest, words: tuple[str, ...]) -> int:
    """In the guard: run runsc until it left the sandbox behind, and return the pid that ends with it."""

    def prepare() -> None:
        request.cgroup.join()
        if "cpu" not in request.cgroup.dirs:
            os.sched_setaffinity(0, processors_for(request.limits.vcpus))

    code = wait_for(runsc.spawn(*words, prepare=prepare), _START_TIMEOUT_S)
    if code:
        raise RuntimeUnavailable(f"runsc {words[0]} ended with {code}")
    pid = int(runsc.pid_file.read_text())
    (runsc.state_dir / "started").touch()
    return pid


def _wait_for_sentry(guard: int, runsc: Runsc) -> int:
    deadline = time.monotonic() + _START_TIMEOUT_S + 5
    while time.monotonic() < deadline:
        if (runsc.state_dir / "started").exists():
            return int(runsc.pid_file.read_text())
        pid, _ = os.waitpid(guard, os.WNOHANG)
        if pid:
            raise RuntimeUnavailable("runsc did not start the sandbox", hint="run `sbx doctor`")
        time.sleep(0.002)
    raise RuntimeUnavailable("runsc did not start the sandbox in time", hint="run `sbx doctor`")
