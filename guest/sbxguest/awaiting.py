"""Whether a job waits for somebody to type.

Its input is open then, and all that was typed has been read. Beyond that the kernel tells in which call each of its
threads sleeps to whoever may trace them, and at which place of its own to whoever may look at them. A thread that waits
for several things at once may wait for the input among them, and some kernels tell nothing: there, a job that sleeps
behind a line it has begun and not ended, as prompts are, is taken for one that waits.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import sys
import termios
from collections.abc import Iterator
from enum import Enum

from sbxguest.job import Job

_THREADS_MAX = 64
# By machine: read(2), and the calls in which a thread waits for several descriptors.
_READ = {"x86_64": 0, "aarch64": 63}
_POLLS = {"x86_64": {7, 23, 232, 270, 271, 281, 426, 441}, "aarch64": {22, 72, 73, 426, 441}}
_MACHINE = platform.machine()
_READING_AT = ("pipe_read", "anon_pipe_read", "n_tty_read")
# Whatever terminal a process has, under this name.
_OWN_TERMINAL = os.makedev(5, 0)


class _Sleep(Enum):
    NO = "no"
    MAYBE = "maybe"
    READS = "reads"


def awaits_input(job: Job) -> bool:
    """Whether a running job waits for input, as far as can be told."""
    fd = job.input.program_fd
    if job.is_finished or not job.pid or fd < 0 or _waiting_bytes(fd):
        return False
    found = set()
    for pid, tid in _threads(job.pid):
        sleep = _sleep_of(pid, tid, os.fstat(fd))
        if sleep is _Sleep.READS:
            return True
        found.add(sleep)
    return _Sleep.MAYBE in found and _is_within_a_line(job)


def _waiting_bytes(fd: int) -> int:
    try:
        return int.from_bytes(fcntl.ioctl(fd, termios.FIONREAD, bytes(4)), sys.byteorder)
    except OSError:
        return 0


def _is_within_a_line(job: Job) -> bool:
    log = job.log
    last = b"".join(data for _, _, data in log.pieces(max(0, log.total - 1), log.total))
    return last not in (b"", b"\n", b"\r")


def _threads(leader: int) -> Iterator[tuple[int, int]]:
    """Processes of a job, by what their parents say, with their threads; at most so many."""
    left = _THREADS_MAX
    pids = [leader]
    while pids and left > 0:
        pid = pids.pop()
        with contextlib.suppress(OSError):
            for tid in os.listdir(f"/proc/{pid}/task")[:left]:  # noqa: PTH208 - the kernel's files, as text
                left -= 1
                yield pid, int(tid)
                pids += map(int, _text(f"/proc/{pid}/task/{tid}/children").split())


def _sleep_of(pid: int, tid: int, stdin: os.stat_result) -> _Sleep:
    if _text(f"/proc/{pid}/task/{tid}/stat").rpartition(")")[2].split()[:1] != ["S"]:
        return _Sleep.NO
    call, *arguments = (_text(f"/proc/{pid}/task/{tid}/syscall") or "?").split()
    if call.isdecimal() and _MACHINE in _READ:
        if int(call) in _POLLS[_MACHINE]:
            return _Sleep.MAYBE
        is_reading, fd = int(call) == _READ[_MACHINE], int(arguments[0], 16)
    elif _text(f"/proc/{pid}/task/{tid}/wchan") in _READING_AT:
        is_reading, fd = True, 0
    else:
        return _Sleep.MAYBE
    return _Sleep.READS if is_reading and _is_same(f"/proc/{pid}/fd/{fd}", stdin) else _Sleep.NO


def _is_same(path: str, stdin: os.stat_result) -> bool:
    try:
        found = os.stat(path)  # noqa: PTH116 - the same
    except OSError:
        return False
    if stdin.st_rdev:
        return found.st_rdev in (stdin.st_rdev, _OWN_TERMINAL)
    return (found.st_dev, found.st_ino) == (stdin.st_dev, stdin.st_ino)


def _text(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:  # noqa: PTH123 - the same
            return file.read()
    except OSError:
        return ""
