"""The first process of a sandbox that has a kernel of its own: keeps limits nobody outside can, and parks the bridge.

The host asks by signal: SIGUSR1 to let go of the bridge's socket (no process with one can be saved), SIGUSR2 to end
whoever fills the disk, which only the host sees. What was killed is told in a file beside the bridge's socket, which
jobs cannot write.
"""

from __future__ import annotations

# All of `socket` would be a part of every start.
import _socket
import contextlib
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Sequence

from sbxguest import kernel
from sbxguest.innerkill import Process, fullest_job, growth_of_writing, jobs_of, processes

Choose = Callable[[list[Process]], list[Process]]

KILLS_FILE = "/run/sbx/kills"
OPEN_FILE = "/run/sbx/open"
# The host reads no more of it, and takes much more for an attack.
_KILLS_BYTES = 256 * 1024
# To give the sandbox another name; nothing else in it has these.
_OWN_RIGHTS = (kernel.CAP_SETPCAP, kernel.CAP_SYS_ADMIN)
_GROUP = "/sys/fs/cgroup/pids/sandbox"
# Not that of `/proc`, which tells what jobs shall see.
_MEMINFO = "/opt/sbx/proc/meminfo"
_MEMORY_LINE = b"AnonPages:"
_MEMINFO_BYTES = 8192
_TICK_MS = 100
_IDLE_TICK_MS = 500
_PARKED_TICK_MS = 10
_RESTART_PAUSE_S = 0.2
# Ticks a full task table is tolerated before its biggest job goes: a burst that ends by itself harms nobody.
_PIDS_TICKS = 2
_PIDS_RESERVE = 16
# Ticks in which not one of those that were killed goes: then they are not what fills the table.
_DYING_TICKS = 20
_STOP_ROUNDS = 40
_STOP_PAUSE_S = 0.005
# Shims that wait for the next job.
_SPARE_TASKS = 2
_CROWD_TASKS = 64


def run(bridge: Sequence[str]) -> int:
    """Prepare the folders, start bridge and init, stay until init ends; returns its exit code, 128+n for signals."""
    _give_folders()
    _make_links_its_own()
    kernel.keep_from_programs(*_OWN_RIGHTS)
    limits = json.loads(os.environ.get("SBX_LIMITS") or "{}")
    has_group = _make_group(int(limits.get("pids_max") or 0))
    pids_max = int(limits.get("pids_max") or 0) if has_group else 0
    first = _First(bridge, pids_max, int(limits.get("memory_mib") or 0) << 20)
    init_pid = os.fork()
    if init_pid == 0:
        kernel.give_up(*_OWN_RIGHTS)
        first.forget_signals()
        if has_group:
            _write(f"{_GROUP}/cgroup.procs", "0")
        # Imported behind the fork: this process needs none of it.
        from sbxguest import init

        init.main()
    return first.watch(init_pid)


def _give_folders() -> None:
    uid = int(os.environ.get("SBX_JOB_UID") or 0)
    for folder in (os.environ.get("SBX_WORKDIR") or "/work", os.environ.get("HOME") or "/home/sandbox"):
        os.chown(folder, uid, uid)
    os.chmod(os.environ.get("HOME") or "/home/sandbox", 0o700)  # noqa: PTH101 - no Path objects at a start


def _make_links_its_own() -> None:
    """Asked for attributes of a link that lies on the host, this kernel says nonsense, and `ls` repeats it."""
    for name in os.listdir("/"):  # noqa: PTH208 - no Path objects at a start
        path = f"/{name}"
        with contextlib.suppress(OSError):
            # A folder is no link, and says so.
            os.symlink(os.readlink(path), f"{path}.new")  # noqa: PTH115, PTH211 - as above
            os.rename(f"{path}.new", path)  # noqa: PTH104 - as above


def _make_group(pids: int) -> bool:
    """A group for everything but this process and the bridge, so that a full table never locks them out."""
    if not pids:
        return False
    with contextlib.suppress(OSError):
        os.chmod("/sys/fs/cgroup", 0o755)  # noqa: PTH101 - as above
    try:
        os.mkdir(_GROUP)  # noqa: PTH102 - as above
        _write(f"{_GROUP}/pids.max", str(pids + _PIDS_RESERVE))
    except OSError as exc:
        sys.stderr.write(f"sbxguest: tasks are not limited: {exc}\n")
        return False
    return True


class _First:
    """The state of this process: its bridge, and what it was asked for."""

    def __init__(self, bridge: Sequence[str], pids_max: int, memory_bytes: int) -> None:
        self._bridge = list(bridge)
        self._pids_max = pids_max
        self._memory_bytes = memory_bytes
        self._idle_tasks = 0
        self._is_idle = False
        self._bridge_pid = 0
        self._asked: set[int] = set()
        self._is_parked = False
        self._full_ticks = 0
        self._over_ticks = 0
        self._tasks = 0
        self._dying_tasks = self._dying_ticks = 0
        # Read at every tick, and kept open.
        self._meminfo = os.open(_MEMINFO, os.O_RDONLY | os.O_CLOEXEC) if memory_bytes else -1
        self._pids = os.open(f"{_GROUP}/pids.current", os.O_RDONLY | os.O_CLOEXEC) if pids_max else -1
        self._wakeup, wakeup_write = os.pipe()
        for descriptor in (self._wakeup, wakeup_write):
            os.set_blocking(descriptor, False)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, self._on_signal)
        signal.set_wakeup_fd(wakeup_write, warn_on_full_buffer=False)
        self._start_bridge()

    def forget_signals(self) -> None:
        """In the forked init: it sets its own."""
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, signal.SIG_DFL)

    def _on_signal(self, number: int, _frame: object) -> None:
        self._asked.add(number)

    def watch(self, init_pid: int) -> int:
        """Serve until init ends."""
        poll = select.poll()
        poll.register(self._wakeup, select.POLLIN)
        while True:
            if poll.poll(_PARKED_TICK_MS if self._is_parked else _IDLE_TICK_MS if self._is_idle else _TICK_MS):
                with contextlib.suppress(BlockingIOError):
                    os.read(self._wakeup, 512)
            asked, self._asked = self._asked, set()
            if asked & {signal.SIGTERM, signal.SIGINT}:
                os.kill(init_pid, signal.SIGTERM)
            # Each call counts: in a storm of forks, one may take as long as all of a tick.
            status = self._reap(init_pid) if signal.SIGCHLD in asked else None
            if status is not None:
                code = os.waitstatus_to_exitcode(status)
                return 128 - code if code < 0 else code
            self._act(asked, init_pid)

    def _act(self, asked: set[int], init_pid: int) -> None:
        if signal.SIGUSR1 in asked and self._bridge_pid:
            self._is_parked = True
            os.kill(self._bridge_pid, signal.SIGUSR1)
        if signal.SIGUSR2 in asked:
            self._end_writer(init_pid)
        if self._is_parked:
            self._look_for_opening()
            return
        self._watch_pids(init_pid)
        self._watch_memory(init_pid)

    # The bridge

    def _start_bridge(self) -> None:
        try:
            self._bridge_pid = os.posix_spawn(self._bridge[0], self._bridge, os.environ)
        except OSError as exc:
            sys.stderr.write(f"sbxguest: no bridge: {exc}\n")

    def _reap(self, init_pid: int) -> int | None:
        found: int | None = None
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    break
                if pid == init_pid:
                    found = status
                if pid == self._bridge_pid:
                    time.sleep(_RESTART_PAUSE_S)
                    self._start_bridge()
        return found

    def _look_for_opening(self) -> None:
        """Restored, or saving failed: the host put the file there that says so."""
        if os.path.exists(OPEN_FILE):  # noqa: PTH110 - as above
            self._is_parked = False
            _take_name()
            with contextlib.suppress(OSError):
                os.kill(self._bridge_pid, signal.SIGUSR2)

    # Limits

    def _watch_memory(self, init_pid: int) -> None:
        used = _anonymous_bytes(self._meminfo) if self._memory_bytes else 0
        if used <= self._memory_bytes:
            self._over_ticks = 0
            return
        self._over_ticks += 1
        # First the biggest job; if that was not enough, its like share the memory: all of a session, then all there is.
        choose = (lambda jobs: jobs[:1], _biggest_session, lambda jobs: jobs)[min(self._over_ticks, 3) - 1]
        self._end(init_pid, choose, "memory", used=used, allowed=self._memory_bytes)

    def _watch_pids(self, init_pid: int) -> None:
        if not self._pids_max:
            return
        try:
            used = self._tasks = self._task_count()
        except (OSError, ValueError):
            return
        # Without a job there are as few tasks as ever were.
        self._idle_tasks = min(self._idle_tasks or used, used)
        self._is_idle = used <= self._idle_tasks + _SPARE_TASKS
        if used < self._pids_max:
            self._full_ticks = self._dying_tasks = 0
            return
        if self._are_dying(used):
            return
        self._full_ticks += 1
        # Forks that fail cost the kernel as much as those that do not, and it lets some through: no waiting then.
        is_storm = used >= self._pids_max + _PIDS_RESERVE // 2
        if self._full_ticks >= _PIDS_TICKS or is_storm:
            choose = fullest_job if self._full_ticks <= _PIDS_TICKS else lambda jobs: jobs
            self._end(init_pid, choose, "pids", used=used, allowed=self._pids_max)
            self._dying_tasks, self._dying_ticks = self._task_count(), 0

    def _task_count(self) -> int:
        return int(os.pread(self._pids, 32, 0))

    def _are_dying(self, used: int) -> bool:
        """Whether tasks that were killed are still counted, as hundreds are for a while: no reason to kill others."""
        if used > self._dying_tasks or self._dying_ticks >= _DYING_TICKS:
            return False
        self._dying_ticks = 0 if used < self._dying_tasks else self._dying_ticks + 1
        self._dying_tasks = used
        return True

    def _end_writer(self, init_pid: int) -> None:
        growth = growth_of_writing(jobs_of(processes(), init_pid))

        def writers(jobs: list[Process]) -> list[Process]:
            writer = max(jobs, key=lambda p: growth.get(p.pid, 0), default=None)
            if writer is None or not growth.get(writer.pid, 0):
                return jobs
            return [p for p in jobs if p.session == writer.session]

        self._end(init_pid, writers, "disk")

    def _end(self, init_pid: int, choose: Choose, limit: str, *, used: int = 0, allowed: int = 0) -> None:
        """Kill the jobs that `choose` picks of all, given biggest first."""
        # All at once, or what grows has the processor and this process never gets to see all of it. Among many tasks
        # already a look at what is there takes too long.
        is_crowd = self._tasks > self._idle_tasks + _CROWD_TASKS
        stopped = [] if is_crowd else [p.pid for p in processes() if p.is_stopped]
        _stop_all()
        try:
            victims = choose(sorted(jobs_of(processes(), init_pid), key=lambda p: -p.rss_bytes))
            for victim in victims:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(victim.pid, signal.SIGKILL)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(-1, signal.SIGCONT)
            # What a person had stopped stays so.
            for pid in stopped:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
        if not victims:
            return
        first = victims[0]
        told = {"limit": limit, "pid": first.pid, "command": first.command, "used": used, "allowed": allowed}
        with contextlib.suppress(OSError), open(KILLS_FILE, "a", encoding="utf-8") as file:  # noqa: PTH123 - as above
            if file.tell() < _KILLS_BYTES:
                file.write(json.dumps(told) + "\n")


def _take_name() -> None:
    """Be called as the host says; restored as another sandbox, that is another name than the kernel's."""
    with contextlib.suppress(OSError), open("/etc/hostname", encoding="ascii") as file:  # noqa: PTH123 - as above
        name = file.read().strip()
        if name and name != _socket.gethostname():
            _socket.sethostname(name)


def _stop_all() -> None:
    """Stop every other process; some may start more before the signal reaches them."""
    known: set[str] = set()
    for _ in range(_STOP_ROUNDS):
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGSTOP)
        found = {name for name in os.listdir("/proc") if name.isdecimal()}  # noqa: PTH208 - as above
        if found <= known:
            return
        known = found
        time.sleep(_STOP_PAUSE_S)


def _biggest_session(jobs: list[Process]) -> list[Process]:
    sums: dict[int, int] = {}
    for job in jobs:
        sums[job.session] = sums.get(job.session, 0) + job.rss_bytes
    return [job for job in jobs if sums[job.session] == max(sums.values())]


def _anonymous_bytes(meminfo: int) -> int:
    """What processes and tmpfs files take; 0 where it is not told. Files of the sandbox's disk are not in it."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(os.pread(meminfo, _MEMINFO_BYTES, 0).partition(_MEMORY_LINE)[2].split(maxsplit=1)[0]) * 1024
    return 0


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
