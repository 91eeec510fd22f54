"""One small process beside each running job: parent of its leader and, as subreaper, of every orphan the job leaves.

Because it is the only one that waits for them, it always knows which pids are really the job's: no signal can hit a
recycled pid, and a descendant that called `setsid`, forked twice or emptied its environment is still found. It is
forked from init (one thread, small heap), tells init what happens over its link, and serves the next job when nothing
of this one is left: a fork costs more than starting a program. When its link closes, it ends its job and itself.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import sys
import time
from typing import Any, NoReturn

from sbxguest import descriptors, kernel
from sbxguest.link import Link
from sbxguest.spawn import Plumbing, SpawnFailed, Spec, start

# Of open files; set by init, which has raised its own.
job_open_files = 0

_KILL_PASSES = 2000
_KILL_PAUSE_S = 0.001


def run(link: Link) -> NoReturn:
    """The life of a forked shim; never returns."""
    code = 1
    try:
        # Copies of init's descriptors would keep other jobs' pipes from ever reaching their end.
        signal.set_wakeup_fd(-1)
        own = link.sock.fileno()
        os.closerange(3, own)
        os.closerange(own + 1, os.sysconf("SC_OPEN_MAX"))
        _restore_open_files()
        kernel.become_subreaper()
        kernel.set_oom_score(0)
        _Shim(link).run()
        code = 0
    except BaseException as exc:  # noqa: BLE001 - a forked copy of init must never go on as init
        print(f"sbxguest: shim failed: {exc!r}", file=sys.stderr)  # noqa: T201
    finally:
        os._exit(code)


class _Shim:
    """The loop of one job."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._leader = 0
        self._is_leader_reaped = False
        self._has_children = False
        self._wakeup, wakeup_w = os.pipe()
        os.set_blocking(self._wakeup, False)
        os.set_blocking(wakeup_w, False)
        # Handlers, not SIG_IGN: an ignored signal would stay ignored in the job.
        for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, _nothing)
        signal.set_wakeup_fd(wakeup_w, warn_on_full_buffer=False)

    def run(self) -> None:
        """Serve one job after another, until init closes the link."""
        poll = select.poll()
        poll.register(self._wakeup, select.POLLIN)
        poll.register(self._link.sock, select.POLLIN)
        while True:
            poll.poll()
            self._drain_wakeup()
            for message, fds in self._link.receive():
                self._handle(message, fds)
            self._reap()
            if self._link.is_closed:
                self._end_all()
                return
            if self._leader and not self._has_children:
                self._leader = 0
                self._is_leader_reaped = False
                self._link.post({"op": "empty"})

    def _drain_wakeup(self) -> None:
        try:
            os.read(self._wakeup, 512)
        except BlockingIOError:
            return

    def _handle(self, message: dict[str, Any], fds: list[int]) -> None:
        match message["op"]:
            case "spawn":
                self._spawn(dict(zip(message["fds"], fds, strict=True)))
            case "signal":
                self._signal(int(message["sig"]), str(message["to"]))

    def _spawn(self, fds: dict[str, int]) -> None:
        spec = Spec.from_bytes(descriptors.read_whole(fds["spec"]))
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        files = (fds.get("in_r", null), fds.get("out_w", null), fds.get("err_w", null))
        terminal = fds.get("tty", -1)
        plumbing = Plumbing(None if terminal >= 0 else files, terminal=terminal, side=fds.get("side_w", -1))
        try:
            self._leader = start(spec, plumbing, [fd for name, fd in fds.items() if name.startswith("cg")])
        except SpawnFailed as exc:
            self._leader = -1
            self._link.post({"op": "failed", "stage": exc.stage, "errno": exc.error_number})
        else:
            self._has_children = True
            self._link.post({"op": "started", "pid": self._leader})
        finally:
            descriptors.close_all((*fds.values(), null))

    def _reap(self) -> None:
        while self._has_children:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self._has_children = False
                return
            if pid == 0:
                return
            if pid == self._leader:
                self._is_leader_reaped = True
                self._link.post({"op": "exit", "code": os.waitstatus_to_exitcode(status)})

    def _signal(self, number: int, to: str) -> None:
        match to:
            case "leader":
                if self._leader > 0 and not self._is_leader_reaped:
                    _send(self._leader, number)
            case "group":
                self._signal_group(number)
            case "tree" if number == signal.SIGKILL:
                self._end_all()
            case _:
                for pid in kernel.descendants(os.getpid()):
                    _send(pid, number)

    def _signal_group(self, number: int) -> None:
        if self._leader > 0 and not self._is_leader_reaped:
            # Its pid cannot be anyone else's yet, so the whole group can be hit at once.
            _send(-self._leader, number)
            return
        for pid, group in kernel.descendants(os.getpid()).items():
            if group == self._leader:
                _send(pid, number)

    def _end_all(self) -> None:
        """KILL until nothing is left: a pass may race with a fork, the next one finds the new process."""
        for _ in range(_KILL_PASSES):
            if self._leader > 0 and not self._is_leader_reaped:
                _send(-self._leader, signal.SIGKILL)
            for pid in kernel.descendants(os.getpid()):
                _send(pid, signal.SIGKILL)
            self._reap()
            if not self._has_children:
                return
            time.sleep(_KILL_PAUSE_S)


def _restore_open_files() -> None:
    """What jobs inherit: old programs count up to the limit, or hold no larger number than the usual one."""
    if job_open_files:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (job_open_files, hard))


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return


def _nothing(_number: int, _frame: object) -> None:
    """Wakes the loop through the wakeup descriptor."""
