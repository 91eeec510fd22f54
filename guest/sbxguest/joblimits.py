"""Limits of one job: control groups where the sandbox may make them, else what is left, and which of both it is."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass

from sbxguest.probes import read_pairs, read_text

_PERIOD_US = 100_000
_BASE = "/sys/fs/cgroup"
_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """What a job may use; None is no limit of its own."""

    pids: int | None = None
    memory_mib: int | None = None
    cpus: float | None = None

    def asked(self) -> dict[str, float]:
        """Those that are set."""
        pairs = {"pids": self.pids, "memory_mib": self.memory_mib, "cpus": self.cpus}
        return {name: value for name, value in pairs.items() if value is not None}


NO_LIMITS = Limits()
_CONTROLLERS = {"pids": "pids", "memory_mib": "memory", "cpus": "cpu"}


class JobGroup:
    """The control groups of one job, one folder for each controller (the same one where they are unified).

    `by` tells for each limit that was asked for who keeps it: `cgroup`, `rlimit` (each process on its own), or
    `nothing`.
    """

    def __init__(self, name: str, *, may_group: bool) -> None:
        self._name = name
        self._may_group = may_group
        self._folders: dict[str, str] = {}
        self._oom_kills = 0

    @classmethod
    def create(cls, name: str, limits: Limits, *, may_group: bool) -> tuple[JobGroup, dict[str, str]]:
        """Make the groups, as far as this sandbox lets us, and tell who keeps each limit."""
        group = cls(name, may_group=may_group)
        by: dict[str, str] = {}
        for limit, value in limits.asked().items():
            is_kept = group._limit(_CONTROLLERS[limit], value)
            by[limit] = "cgroup" if is_kept else "rlimit" if limit == "memory_mib" else "nothing"
        return group, by

    @classmethod
    def found(cls, name: str, by: Mapping[str, str]) -> JobGroup:
        """The groups that a killed server made."""
        group = cls(name, may_group=True)
        for limit, kept_by in by.items():
            if kept_by == "cgroup" and (home := _home_of(_CONTROLLERS[limit])):
                group._folders[_CONTROLLERS[limit]] = f"{home}/{name}"
        return group

    def _limit(self, controller: str, value: float) -> bool:
        home = _home_of(controller) if self._may_group else ""
        folder = f"{home}/{self._name}"
        try:
            if not home:
                return False
            os.makedirs(folder, exist_ok=True)  # noqa: PTH103 - text, as everywhere here
            for name, text in _settings(controller, value, is_unified=_is_unified(home)):
                _write(f"{folder}/{name}", text)
        except OSError:
            with contextlib.suppress(OSError):
                os.rmdir(folder)  # noqa: PTH106 - as above
            return False
        self._folders[controller] = folder
        return True

    def open_doors(self) -> dict[str, int]:
        """Where the program writes to go in, as `cg…`; the caller closes them.

        Raises:
            OSError: Too many are open; none of these is left.
        """
        fds: dict[str, int] = {}
        try:
            for number, folder in enumerate(dict.fromkeys(self._folders.values())):
                fds[f"cg{number}"] = os.open(f"{folder}/cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)
        except OSError:
            for fd in fds.values():
                os.close(fd)
            raise
        return fds

    def oom_kills(self) -> int | None:
        """How many of the job's processes the kernel ended for memory, also after `remove`.

        None where no group of its own tells.
        """
        folder = self._folders.get("memory")
        if folder is None:
            return None
        names = ("memory.events", "memory.oom_control")
        # A group that is gone tells nothing: what it told last stays true.
        self._oom_kills = max(self._oom_kills, *(read_pairs(f"{folder}/{name}").get("oom_kill", 0) for name in names))
        return self._oom_kills

    def kill(self) -> None:
        """End all of it at one stroke, where the kernel can."""
        for folder in set(self._folders.values()):
            with contextlib.suppress(OSError):
                _write(f"{folder}/cgroup.kill", "1")

    def remove(self) -> None:
        """Take the groups away; nothing happens to one that is not empty."""
        self.oom_kills()
        for folder in set(self._folders.values()):
            with contextlib.suppress(OSError):
                os.rmdir(folder)  # noqa: PTH106 - as above


def _settings(controller: str, value: float, *, is_unified: bool) -> tuple[tuple[str, str], ...]:
    """Files and what to write into them."""
    quota_us = max(1000, int(value * _PERIOD_US))
    match controller:
        case "pids":
            return (("pids.max", str(int(value))),)
        case "memory" if is_unified:
            return (("memory.max", str(int(value) * _MIB)), ("memory.swap.max", "0"))
        case "memory":
            return (("memory.limit_in_bytes", str(int(value) * _MIB)),)
        case _ if is_unified:
            return (("cpu.max", f"{quota_us} {_PERIOD_US}"),)
        case _:
            return (("cpu.cfs_period_us", str(_PERIOD_US)), ("cpu.cfs_quota_us", str(quota_us)))


def _home_of(controller: str) -> str:
    """Our own group in the hierarchy of a controller; empty where it cannot have groups below it."""
    for line in read_text("/proc/self/cgroup").splitlines():
        _number, names, path = line.split(":", 2)
        if controller in names.split(","):
            folder = f"{_BASE}/{controller}{path}".rstrip("/")
            return folder if os.access(f"{folder}/cgroup.procs", os.W_OK) else ""
        if not names and _is_unified(_BASE):
            folder = f"{_BASE}{path}".rstrip("/")
            return folder if _hands_down(folder, controller) else ""
    return ""


def _is_unified(folder: str) -> bool:
    return os.path.exists(f"{folder}/cgroup.controllers")  # noqa: PTH110 - as above


def _hands_down(folder: str, controller: str) -> bool:
    switch = f"{folder}/cgroup.subtree_control"
    if controller not in read_text(switch).split():
        with contextlib.suppress(OSError):
            _write(switch, f"+{controller}")
    return controller in read_text(switch).split()


def _write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)
