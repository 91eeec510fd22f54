"""Fork and exec with everything a sandbox needs set between the two; only for a process with one thread (a keeper)."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 36, 38
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Launch:
    """A program to start: its path on the host, and what it is told to be called.

    `prepare` runs in the child with the keeper's rights, before the uid is dropped.
    """

    program: str
    argv: Sequence[str]
    env: Mapping[str, str]
    log_fd: int
    uid: int | None
    gid: int | None
    prepare: Callable[[], None]
    pass_fds: Sequence[int] = field(default_factory=tuple)


def become_subreaper() -> None:
    """Orphans below this process become its children instead of init's.

    Raises:
        OSError: The kernel refuses.
    """
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent_pid: int) -> None:
    """SIGKILL for the calling process when its parent ends; ends it now if that already happened."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        os._exit(1)


def launch(order: Launch) -> int:
    """Start the program and return its pid; a failure before exec is written to the log and seen as exit code 127."""
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        _exec(order, parent)
    except BaseException as exc:  # noqa: BLE001 - a process boundary: nothing returns from here
        with contextlib.suppress(OSError):
            os.write(order.log_fd, f"start of {order.program} failed: {exc}\n".encode())
    os._exit(127)


def _exec(order: Launch, parent: int) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    os.setpgid(0, 0)
    order.prepare()
    if order.uid is not None and order.gid is not None:
        os.setgroups([])
        os.setresgid(order.gid, order.gid, order.gid)
        os.setresuid(order.uid, order.uid, order.uid)
    # Changing the uid clears the death signal, so it is set behind that.
    die_with_parent(parent)
    _prctl(_PR_SET_NO_NEW_PRIVS, 1) if order.uid is not None else None
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(order.log_fd, 1)
    os.dup2(order.log_fd, 2)
    for descriptor in order.pass_fds:
        os.set_inheritable(descriptor, True)
    os.chdir("/")
    os.umask(0o022)
    sys.stdout.flush()
    os.execve(order.program, list(order.argv), dict(order.env))


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
