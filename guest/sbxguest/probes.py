"""Where the numbers of a sandbox come from: its cgroup, its processes, or the whole machine it is.

A sandbox that is a machine of its own reads the kernel's totals. One that shares a kernel must not: those are its
host's. It reads its cgroup where that is its own, else adds up its processes and takes limits from what it was told.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_UNLIMITED = 2**60
# Counting descriptors costs one listing per process; past this many the count is left unknown.
_MAX_LISTED_PROCESSES = 200


def read_text(path: str) -> str:
    """A small kernel file, or empty when it cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        pieces = []
        while piece := os.read(fd, 65_536):
            pieces.append(piece)
        return b"".join(pieces).decode("utf-8", "replace")
    except OSError:
        return ""
    finally:
        os.close(fd)


def read_number(path: str) -> int | None:
    """A kernel file that holds one number; None when it is missing or says `max`."""
    text = read_text(path).strip()
    return int(text) if text.isdigit() and int(text) < _UNLIMITED else None


def read_pairs(path: str) -> dict[str, int]:
    """A kernel file of `name number` lines (a colon and a unit are dropped)."""
    pairs: dict[str, int] = {}
    for line in read_text(path).splitlines():
        parts = line.split()
        if len(parts) >= 2 and parts[1].isdigit():
            pairs[parts[0].rstrip(":")] = int(parts[1])
    return pairs


@dataclass(frozen=True, slots=True)
class Reading:
    """What one source says; None is unknown. Seconds of CPU are totals since the sandbox began."""

    source: str
    cpu_s: float | None = None
    cores_s: tuple[float, ...] = ()
    quota_cores: float | None = None
    throttled_s: float | None = None
    throttled_count: int | None = None
    memory_bytes: int | None = None
    memory_limit_bytes: int | None = None
    swap_bytes: int | None = None
    swap_limit_bytes: int | None = None
    pids: int | None = None
    pids_limit: int | None = None
    oom_count: int | None = None
    open_files: int | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """What the sandbox was told it may use; None where it was not told."""

    memory_bytes: int | None = None
    vcpus: float | None = None
    pids: int | None = None
    disk_bytes: int | None = None

    @classmethod
    def of(cls, said: Mapping[str, object]) -> Limits:
        """From the guest's settings: `vcpus`, `pids_max`, and `memory` and `disk` as `…_mib` or `…_bytes`."""
        pids = _whole(said.get("pids_max"))
        return cls(_bytes(said, "memory"), _positive(said.get("vcpus")), pids, _bytes(said, "disk"))


def _positive(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and value > 0 else None


def _whole(value: object) -> int | None:
    number = _positive(value)
    return None if number is None else int(number)


def _bytes(said: Mapping[str, object], name: str) -> int | None:
    if (exact := _whole(said.get(f"{name}_bytes"))) is not None:
        return exact
    mib = _positive(said.get(f"{name}_mib"))
    return None if mib is None else int(mib * 1024 * 1024)


def choose_source(said: Mapping[str, object], isolation: str, *, root: str = "/") -> Callable[[], Reading]:
    """The function that reads this sandbox's numbers; the choice holds for the life of a server."""
    if (cgroup := find_cgroup(root)) is not None:
        return cgroup
    if said or (isolation and "firecracker" not in isolation.lower()):
        return ProcessesSource(Limits.of(said))
    return read_machine


def find_cgroup(root: str = "/") -> Callable[[], Reading] | None:
    """A reader of the cgroup mounted at /sys/fs/cgroup if it is this sandbox's own, else None.

    Own means: a cgroup namespace starts here (`0::/`) at a group that is not the machine's root; only such a root has
    the usage files that the real root lacks.
    """
    base = os.path.join(root, "sys/fs/cgroup")
    membership = read_text(os.path.join(root, "proc/self/cgroup")).split("\n")
    if "0::/" in membership and os.path.exists(f"{base}/memory.current") and os.path.exists(f"{base}/cpu.stat"):
        return lambda: _read_v2(base)
    is_own_v1 = any(line.endswith(":/") and ":memory:" in line for line in membership)
    limit = read_number(f"{base}/memory/memory.limit_in_bytes")
    if is_own_v1 and limit is not None and limit < _total_memory_bytes():
        return lambda: _read_v1(base)
    return None


def _total_memory_bytes() -> int:
    return read_pairs("/proc/meminfo").get("MemTotal", 0) * 1024


def _read_v2(base: str) -> Reading:
    cpu = read_pairs(f"{base}/cpu.stat")
    quota = read_text(f"{base}/cpu.max").split()
    stat = read_pairs(f"{base}/memory.stat")
    used = read_number(f"{base}/memory.current")
    return Reading(
        source="cgroup",
        cpu_s=cpu.get("usage_usec", 0) / 1e6,
        quota_cores=int(quota[0]) / int(quota[1]) if len(quota) == 2 and quota[0].isdigit() else None,
        throttled_s=cpu["throttled_usec"] / 1e6 if "throttled_usec" in cpu else None,
        throttled_count=cpu.get("nr_throttled"),
        # Cache the kernel would give back at once is not use.
        memory_bytes=None if used is None else max(0, used - stat.get("inactive_file", 0)),
        memory_limit_bytes=read_number(f"{base}/memory.max"),
        swap_bytes=read_number(f"{base}/memory.swap.current"),
        swap_limit_bytes=read_number(f"{base}/memory.swap.max"),
        pids=read_number(f"{base}/pids.current"),
        pids_limit=read_number(f"{base}/pids.max"),
        oom_count=read_pairs(f"{base}/memory.events").get("oom_kill"),
    )


def _read_v1(base: str) -> Reading:
    throttling = read_pairs(f"{base}/cpu/cpu.stat")
    quota_us = read_number(f"{base}/cpu/cpu.cfs_quota_us")
    period_us = read_number(f"{base}/cpu/cpu.cfs_period_us")
    usage_ns = read_number(f"{base}/cpuacct/cpuacct.usage")
    used = read_number(f"{base}/memory/memory.usage_in_bytes")
    stat = read_pairs(f"{base}/memory/memory.stat")
    return Reading(
        source="cgroup",
        cpu_s=None if usage_ns is None else usage_ns / 1e9,
        quota_cores=quota_us / period_us if quota_us and period_us else None,
        throttled_s=throttling["throttled_time"] / 1e9 if "throttled_time" in throttling else None,
        throttled_count=throttling.get("nr_throttled"),
        memory_bytes=None if used is None else max(0, used - stat.get("total_inactive_file", 0)),
        memory_limit_bytes=read_number(f"{base}/memory/memory.limit_in_bytes"),
        pids=read_number(f"{base}/pids/pids.current"),
        pids_limit=read_number(f"{base}/pids/pids.max"),
        oom_count=read_pairs(f"{base}/memory/memory.oom_control").get("oom_kill"),
    )


def read_machine() -> Reading:
    """Totals of a kernel that serves this sandbox alone."""
    memory = read_pairs("/proc/meminfo")
    cores = [line.split() for line in read_text("/proc/stat").splitlines() if line.startswith("cpu")]
    busy_s = [_busy_s(core) for core in cores]
    files = read_text("/proc/sys/fs/file-nr").split()
    swap_total = memory.get("SwapTotal", 0)
    return Reading(
        source="machine",
        cpu_s=busy_s[0] if busy_s else None,
        cores_s=tuple(busy_s[1:]),
        memory_bytes=(memory.get("MemTotal", 0) - memory.get("MemAvailable", 0)) * 1024,
        memory_limit_bytes=memory.get("MemTotal", 0) * 1024,
        swap_bytes=(swap_total - memory.get("SwapFree", 0)) * 1024,
        swap_limit_bytes=swap_total * 1024,
        pids=sum(name.isdigit() for name in os.listdir("/proc")),
        pids_limit=read_number("/proc/sys/kernel/pid_max"),
        oom_count=read_pairs("/proc/vmstat").get("oom_kill"),
        open_files=int(files[0]) if files else None,
    )


def _busy_s(core: list[str]) -> float:
    """user, nice, system, irq, softirq and steal of a /proc/stat line: idle and waiting are not use."""
    ticks = [int(text) for text in core[1:9]] + [0] * 8
    return (ticks[0] + ticks[1] + ticks[2] + ticks[5] + ticks[6] + ticks[7]) / _TICKS_PER_S


@dataclass(slots=True)
class ProcessesSource:
    """Adds up the sandbox's own processes: those below init.

    A process that ended leaves its CPU time with the parent that waited for it, and init waits for every orphan, so the
    sum goes on growing; a process killed between two samples can still make it step back, which readers see as 0.
    """

    limits: Limits
    # The server's parent is init, and everything of the sandbox is below init.
    _root_pid: int = field(default_factory=os.getppid)

    def __call__(self) -> Reading:
        """Add up once."""
        ticks = pages = descriptors = 0
        pids = self._own_pids()
        can_list = len(pids) <= _MAX_LISTED_PROCESSES
        for pid, fields in pids.items():
            # utime, stime, and those of waited-for children.
            ticks += sum(int(text) for text in fields[11:15])
            pages += _private_pages(pid)
            if can_list:
                with contextlib.suppress(OSError):
                    descriptors += len(os.listdir(f"/proc/{pid}/fd"))
        return Reading(
            source="processes",
            cpu_s=ticks / _TICKS_PER_S,
            quota_cores=self.limits.vcpus,
            memory_bytes=pages * _PAGE_BYTES,
            memory_limit_bytes=self.limits.memory_bytes,
            pids=len(pids),
            pids_limit=self.limits.pids,
            open_files=descriptors if can_list else None,
        )

    def _own_pids(self) -> dict[int, list[str]]:
        """pid → fields of its stat line from the state on, for every process of the sandbox."""
        stats: dict[int, list[str]] = {}
        for name in os.listdir("/proc"):
            if name.isdigit() and (line := read_text(f"/proc/{name}/stat")):
                # The command's name is in brackets and may hold anything, also brackets.
                stats[int(name)] = line[line.rfind(")") + 2 :].split()
        if self._root_pid == 1:
            return stats
        children: dict[int, list[int]] = {}
        for pid, fields in stats.items():
            children.setdefault(int(fields[1]), []).append(pid)
        own: dict[int, list[str]] = {}
        pending = [self._root_pid]
        while pending:
            pid = pending.pop()
            if pid in stats and pid not in own:
                own[pid] = stats[pid]
                pending.extend(children.get(pid, ()))
        return own


def _private_pages(pid: int) -> int:
    """Resident pages less those of files: shared libraries are not added up once per process."""
    fields = read_text(f"/proc/{pid}/statm").split()
    return max(0, int(fields[1]) - int(fields[2])) if len(fields) > 2 else 0


def read_network(root: str = "/") -> dict[str, dict[str, int]]:
    """Totals per network interface but loopback: rx_bytes, rx_packets, tx_bytes, tx_packets, and dropped or failed."""
    interfaces: dict[str, dict[str, int]] = {}
    for line in Path(root, "proc/net/dev").read_text().splitlines()[2:]:
        name, _, rest = line.partition(":")
        counts = [int(text) for text in rest.split()]
        if name.strip() == "lo" or len(counts) < 12:
            continue
        interfaces[name.strip()] = {
            "rx_bytes": counts[0],
            "rx_packets": counts[1],
            "rx_failed": counts[2] + counts[3],
            "tx_bytes": counts[8],
            "tx_packets": counts[9],
            "tx_failed": counts[10] + counts[11],
        }
    return interfaces
