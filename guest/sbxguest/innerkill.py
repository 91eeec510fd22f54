"""The processes of a sandbox as its first one sees them, to choose who is ended for a limit."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from typing import NamedTuple

_GUEST_MARKS = (b"sbxguest", b"sbxboot")
_SAMPLE_S = 0.05
_STAT_BYTES = 4096


class Process(NamedTuple):
    """One process; `rss_bytes` counts shared pages in each that maps them."""

    pid: int
    parent: int
    session: int
    command: str
    rss_bytes: int
    is_stopped: bool


def processes() -> list[Process]:
    """All of the sandbox."""
    found: list[Process] = []
    for name in os.listdir("/proc"):  # noqa: PTH208 - this runs while memory or tasks are short
        if name.isdecimal():
            with contextlib.suppress(OSError, ValueError, IndexError):
                found.append(_read(int(name)))
    return found


def _read(pid: int) -> Process:
    # As few calls as can be: there may be thousands to read, in a kernel that is busy with them.
    descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
    try:
        stat = os.read(descriptor, _STAT_BYTES)
    finally:
        os.close(descriptor)
    # The command may hold anything, so count from its last parenthesis.
    fields = stat[stat.rindex(b")") + 2 :].split()
    command = stat[stat.index(b"(") + 1 : stat.rindex(b")")].decode(errors="replace")
    return Process(pid, int(fields[1]), int(fields[3]), command, int(fields[21]) * 4096, fields[0] == b"T")


def jobs_of(all_processes: Sequence[Process], init_pid: int) -> list[Process]:
    """Those that are not the guest: this process, its children, and init's shims."""
    us = os.getpid()
    return [
        p
        for p in all_processes
        if p.pid != us and p.parent not in (0, us) and not (p.parent == init_pid and _is_marked(p.pid))
    ]


def fullest_job(jobs: list[Process]) -> list[Process]:
    """Those of the job with the most: what a job started stays below its shim, whatever sessions it makes."""
    by_pid = {job.pid: job for job in jobs}
    counts: dict[int, int] = {}
    shims: dict[int, int] = {}
    for job in jobs:
        above = job
        while above.parent in by_pid:
            above = by_pid[above.parent]
        shims[job.pid] = above.parent
        counts[above.parent] = counts.get(above.parent, 0) + 1
    fullest = max(counts, key=lambda shim: counts[shim], default=0)
    return [job for job in jobs if shims[job.pid] == fullest]


def _is_marked(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:  # noqa: PTH123 - as above
            line = file.read()
    except OSError:
        return False
    return any(mark in line for mark in _GUEST_MARKS)


def growth_of_writing(jobs: Sequence[Process]) -> dict[int, int]:
    """Bytes each wrote within a moment."""
    before = {p.pid: _written(p.pid) for p in jobs}
    time.sleep(_SAMPLE_S)
    return {pid: _written(pid) - count for pid, count in before.items()}


def _written(pid: int) -> int:
    with contextlib.suppress(OSError, ValueError), open(f"/proc/{pid}/io", encoding="ascii") as file:  # noqa: PTH123
        for line in file:
            if line.startswith("wchar:"):
                return int(line.split()[1])
    return 0
