"""The few Linux calls the standard library lacks."""

from __future__ import annotations

import ctypes
import os
import sys

_PR_SET_DUMPABLE = 4
_PR_CAPBSET_DROP = 24
_PR_SET_CHILD_SUBREAPER = 36
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_MIB = 1024 * 1024

_CAPABILITY_VERSION_3 = 0x20080522
# By their numbers.
CAP_SETPCAP, CAP_SYS_ADMIN = 8, 21

_libc = ctypes.CDLL(None, use_errno=True)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux" and _libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def become_subreaper() -> None:
    """Have every orphan below this process re-parented to it."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def close_memory() -> None:
    """Close this process's memory, environment and descriptors to jobs of other users (and of this one)."""
    _prctl(_PR_SET_DUMPABLE, 0)


def keep_from_programs(*capabilities: int) -> None:
    """No program that is started below this process can have these from now on; this process keeps what it has."""
    for one in capabilities:
        _prctl(_PR_CAPBSET_DROP, one)


def give_up(*capabilities: int) -> None:
    """Have these no more, and never again."""
    header, sets = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0), (ctypes.c_uint32 * 6)()
    if _libc.capget(header, sets) != 0:
        raise OSError(ctypes.get_errno(), "capget")
    mask = sum(1 << one for one in capabilities)
    # Effective, permitted and inheritable, each with its lower half first: all these numbers are below 32.
    for at in range(3):
        sets[at] &= ~mask
    if _libc.capset(header, sets) != 0:
        raise OSError(ctypes.get_errno(), "capset")


def set_oom_score(score: int) -> None:
    """Tell the kernel how willingly to end this process when memory runs out; without permission, nothing changes."""
    try:
        with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:  # noqa: PTH123 - pathlib is a large import
            file.write(str(score))
    except OSError:
        return


def parents() -> dict[int, tuple[int, int, bytes]]:
    """Every process one can see: pid to (parent, process group, state letter)."""
    found: dict[int, tuple[int, int, bytes]] = {}
    try:
        names = os.listdir("/proc")  # noqa: PTH208 - as above
    except OSError:
        return found
    for name in names:
        if not name.isdecimal():
            continue
        try:
            fd = os.open(f"/proc/{name}/stat", os.O_RDONLY | os.O_CLOEXEC)
            try:
                stat = os.read(fd, 1024)
            finally:
                os.close(fd)
        except OSError:
            continue
        # The command stands in parentheses and may hold anything; count from its last closing one.
        state, parent, group = stat[stat.rindex(b")") + 2 :].split(None, 3)[:3]
        found[int(name)] = (int(parent), int(group), state)
    return found


def descendants(root: int) -> dict[int, int]:
    """All living processes below `root`: pid to process group. Zombies are left out."""
    everybody = parents()
    children: dict[int, list[int]] = {}
    for pid, (parent, _group, _state) in everybody.items():
        children.setdefault(parent, []).append(pid)
    below: dict[int, int] = {}
    waiting = list(children.get(root, ()))
    while waiting:
        pid = waiting.pop()
        waiting.extend(children.get(pid, ()))
        if everybody[pid][2] not in (b"Z", b"X"):
            below[pid] = everybody[pid][1]
    return below


def keep_freed_memory() -> None:
    """Keep some megabytes of freed memory for the next pieces of a stream.

    glibc gives every large piece back to the kernel at once, and getting it again, page by page, takes a third of the
    time of passing it on. Another C library is left as it is.
    """
    mallopt = getattr(_libc, "mallopt", None)
    if mallopt is not None:
        mallopt(_M_TRIM_THRESHOLD, 8 * _MIB)
        mallopt(_M_MMAP_THRESHOLD, _MIB)
