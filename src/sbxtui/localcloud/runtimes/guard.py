"""A process between keeper and sandbox: what it starts ends with the keeper, and nothing of it outlives its first."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable
from typing import NoReturn

from sbxtui.core.errors import RuntimeUnavailable
from sbxtui.localcloud.keeper_processes import child_pids, descendants, send_signal
from sbxtui.localcloud.runtimes.launch import become_subreaper

_GONE_TIMEOUT_S = 5.0
_FIRST_TIMEOUT_S = 10.0


def start_guard(start: Callable[[], int], *, keep_fds: tuple[int, ...]) -> int:
    """Fork a guard and return its pid.

    The guard calls `start` for the pid to wait for, a child or an orphan below it, and ends with that one's exit code.
    It kills all below itself then, and also when this process dies, however that happens.

    Args:
        start: Runs in the guard. Raising ends the guard with code 1.
        keep_fds: What it needs of this process's descriptors; copies of sockets would answer for a dead keeper.
    """
    alive_read, _alive_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(_alive_write)
        _guard(alive_read, start, keep_fds)
    os.close(alive_read)
    # `_alive_write` stays open on purpose: the guard sees its end when this process dies.
    return pid


def first_child(guard: int) -> int:
    """What a guard started first, once that is there.

    Raises:
        RuntimeUnavailable: It did not start in time, or the guard ended, which is reaped then.
    """
    deadline = time.monotonic() + _FIRST_TIMEOUT_S
    while time.monotonic() < deadline:
        if (children := child_pids(guard)) != []:
            return children[0]
        if os.waitpid(guard, os.WNOHANG)[0]:
            break
        time.sleep(0.001)
    raise RuntimeUnavailable("the sandbox's process did not start", hint="see the sandbox's log")


def _guard(alive: int, start: Callable[[], int], keep_fds: tuple[int, ...]) -> NoReturn:
    code = 1
    try:
        _close_all_but({alive, *keep_fds})
        become_subreaper()
        code = _run(alive, start)
    finally:
        os._exit(code)


def _close_all_but(kept: set[int]) -> None:
    # Asked, not counted to the limit: that may be a billion, or lowered below what is open.
    for descriptor in map(int, os.listdir("/proc/self/fd")):  # noqa: PTH208 - at each start: no Path objects
        if descriptor > 2 and descriptor not in kept:
            with contextlib.suppress(OSError):
                os.close(descriptor)


def _run(alive: int, start: Callable[[], int]) -> int:
    wakeup_read, wakeup_write = os.pipe()
    os.set_blocking(wakeup_write, False)
    signal.set_wakeup_fd(wakeup_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    first = -1
    status: int | None = None
    try:
        first = start()
        while status is None:
            ready, _, _ = select.select([alive, wakeup_read], [], [])
            if wakeup_read in ready:
                os.read(wakeup_read, 4096)
            status = _reap(first)
            if alive in ready:
                break
    finally:
        _end_all(lambda: _reap(first))
    return _code(status) if status is not None else 128 + signal.SIGKILL


def _reap(first: int) -> int | None:
    """Reap everything that ended; the wait status of `first` if it was among them."""
    found: int | None = None
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            if pid == first:
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
