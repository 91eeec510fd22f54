"""Keeps one sandbox within its limits where the kernel alone does not: looks every 100 ms and kills what went over.

Kills hit jobs, never the guest, while any job is left; a kill is recorded for `status`. Memory and tasks are the
kernel's business where a cgroup holds them, and the watchdog then only clears what the kernel cannot (a full task
table) and writes down what it did. The disk is always watched from here.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from sbxtui.core.kills import Kill
from sbxtui.core.text import harmless_line, iso
from sbxtui.localcloud.cgroups import Cgroup
from sbxtui.localcloud.keeper_place import remove_trees
from sbxtui.localcloud.keeper_processes import (
    Process,
    descendants,
    guest_pids,
    proportional_bytes,
    resident_bytes,
    send_signal,
    stop_all,
    unlinked_bytes,
    written_bytes,
)
from sbxtui.localcloud.limits import Limits
from sbxtui.localcloud.shown import ShownUse
from sbxtui.localcloud.treewalk import INODE_BYTES, usage_of

TICK_S = 0.1
_IDLE_TICK_S, _IDLE_TICK_ALONE_S = 0.5, 0.25
_KILLS_KEPT = 64
# Ticks a full task table is tolerated before its biggest job goes: a burst that ends by itself harms nobody.
_PIDS_TICKS = 3
_JOB_OOM_SCORE = 500
_SCAN_EVERY_S, _IDLE_SCAN_EVERY_S = 3.0, 30.0
_CONTROL_BYTES = 1 << 20
# Scans of the disk may take this share of the time.
_SCAN_SHARE = 0.2
_UNASKED_SHARE = 0.05


@dataclass(frozen=True, slots=True)
class Watched:
    """The sandbox as the watchdog needs it. `root` is the keeper's child, `boot` the guest's first process.

    `tmpfs_dirs` are the sandbox's tmpfs mounts as the host reaches them, `disk_dirs` what counts as its disk, and
    `disk_views` other file systems through which it writes there.
    `control_dir` is writable inside as well and holds the bridge's socket, nothing else.
    """

    root: int
    boot: int
    limits: Limits
    cgroup: Cgroup
    tmpfs_dirs: tuple[str, ...]
    disk_dirs: tuple[Path, ...]
    disk_views: tuple[str, ...]
    control_dir: Path
    shown: ShownUse


@dataclass(slots=True)
class _Disk:
    used: int = 0
    free_at_scan: int = 0
    scanned_at: float = 0.0
    judged_at: float = 0.0
    scan_s: float = 0.0
    killed_at_used: int = 0
    is_whole: bool = True


@dataclass(slots=True)
class Watchdog:
    """Call `tick` every `pause_s` seconds while the sandbox runs (not while it is frozen)."""

    watched: Watched
    kill_sandbox: Callable[[], None]
    kills: deque[Kill] = field(default_factory=lambda: deque(maxlen=_KILLS_KEPT))
    kill_count: int = 0
    memory_used: int = 0
    pids_used: int = 0
    _disk: _Disk = field(default_factory=_Disk)
    _pids_full_ticks: int = 0
    _oom_kills: int = 0
    _scored: set[tuple[int, int]] = field(default_factory=set)
    _written: dict[int, int] = field(default_factory=dict)
    _biggest: Process | None = None
    _filled: int = 0

    @property
    def pause_s(self) -> float:
        """Until the next tick: short while jobs run, longer while there are none, longest where the kernel holds the
        line.
        """
        if self._scored:
            return TICK_S
        return _IDLE_TICK_S if "memory" in self.watched.cgroup.dirs else _IDLE_TICK_ALONE_S

    def disk_bytes(self) -> int:
        """Bytes of `disk_dirs`: counted now if that is cheap, else at the last scan."""
        if time.monotonic() - self._disk.scanned_at >= self._disk.scan_s / _SCAN_SHARE:
            self._scan(self._processes())
        return self._disk.used

    def fill_disk(self) -> None:
        """Take the disk for full from now on, as if something had filled it: who writes more is ended."""
        self._filled += max(0, self.watched.limits.disk_bytes - self.disk_bytes())
        self._scan(self._processes())

    def tick(self) -> None:
        """Look once and act."""
        processes = self._processes()
        guest = guest_pids(processes, self.watched.boot)
        jobs = {pid: p for pid, p in processes.items() if pid not in guest}
        self._mark_jobs(jobs)
        self._watch_memory(processes, jobs)
        self._watch_pids(processes, jobs)
        self._watch_disk(processes, jobs)
        self._watch_control_dir(jobs)
        self.watched.shown.show(memory_used=self.memory_used, disk_used=self._disk.used)

    def note_end(self) -> bool:
        """Look once more, after the sandbox ended: whether the kernel killed something in it since the last tick."""
        count = self.kill_count
        self._note_oom_kills({})
        return self.kill_count > count

    def _processes(self) -> dict[int, Process]:
        return {pid: p for pid, p in descendants(self.watched.root).items() if p.is_alive}

    def _mark_jobs(self, jobs: dict[int, Process]) -> None:
        """Make the kernel's own OOM killer prefer jobs to the guest."""
        current = {(p.pid, p.start_ticks) for p in jobs.values()}
        for pid, _ in current - self._scored:
            with contextlib.suppress(OSError):
                Path(f"/proc/{pid}/oom_score_adj").write_text(str(_JOB_OOM_SCORE))
        self._scored = current

    def _watch_memory(self, processes: dict[int, Process], jobs: dict[int, Process]) -> None:
        limit = self.watched.limits.memory_bytes
        used = self.watched.cgroup.memory_bytes()
        if used is not None:
            self.memory_used = used
            self._note_oom_kills(processes)
            self._biggest = max(jobs.values(), key=lambda p: p.rss_bytes, default=None)
            return
        tmpfs = self._tmpfs_bytes()
        self.memory_used = tmpfs + sum(map(resident_bytes, processes))
        if self.memory_used <= limit:
            return
        shares = {pid: proportional_bytes(pid) for pid in processes}
        self.memory_used = tmpfs + sum(shares.values())
        if self.memory_used <= limit:
            return
        victim = max(jobs.values(), key=lambda p: shares[p.pid], default=None)
        if victim is None:
            self._record("memory", processes.get(self.watched.boot), self.memory_used, limit)
            self.kill_sandbox()
            return
        send_signal([victim.pid], signal.SIGKILL)
        self._record("memory", victim, self.memory_used, limit)

    def _note_oom_kills(self, processes: dict[int, Process]) -> None:
        """Write down what the kernel killed: it tells how many, and the biggest job that is gone now was one of
        them.
        """
        count = self.watched.cgroup.oom_kills()
        for _ in range(count - self._oom_kills):
            gone = self._biggest if self._biggest and self._biggest.pid not in processes else None
            self._biggest = None
            self._record("memory", gone, self.watched.limits.memory_bytes, self.watched.limits.memory_bytes)
        self._oom_kills = count

    def _tmpfs_bytes(self) -> int:
        total = 0
        for folder in self.watched.tmpfs_dirs:
            with contextlib.suppress(OSError):
                info = os.statvfs(folder)
                total += (info.f_blocks - info.f_bfree) * info.f_frsize
        return total

    def _watch_pids(self, processes: dict[int, Process], jobs: dict[int, Process]) -> None:
        limit = self.watched.limits.pids
        in_group = self.watched.cgroup.pids()
        self.pids_used = in_group if in_group is not None else sum(p.tasks for p in processes.values())
        if self.pids_used < limit:
            self._pids_full_ticks = 0
            return
        self._pids_full_ticks += 1
        if self._pids_full_ticks < _PIDS_TICKS or not jobs:
            return
        used = self.pids_used
        # First the session that holds most tasks; if the table is full again at once, all jobs: a bomb may have many
        # sessions.
        session, _ = _tasks_by_session(jobs).most_common(1)[0]
        is_last_resort = self._pids_full_ticks > _PIDS_TICKS

        def is_victim(process: Process) -> bool:
            return is_last_resort or process.session == session

        self._kill_growing(is_victim)
        self._record("pids", max((p for p in jobs.values() if is_victim(p)), key=lambda p: p.tasks), used, limit)

    def _kill_growing(self, is_victim: Callable[[Process], bool]) -> None:
        """Kill processes that may start others meanwhile: all are stopped first."""

        def victims() -> dict[int, Process]:
            processes = self._processes()
            guest = guest_pids(processes, self.watched.boot)
            return {pid: p for pid, p in processes.items() if pid not in guest and is_victim(p)}

        stop_all(victims)
        send_signal(victims(), signal.SIGKILL)

    def _watch_disk(self, processes: dict[int, Process], jobs: dict[int, Process]) -> None:
        if self._is_scan_due():
            self._scan(processes)
        # Also what somebody else had counted: who asks all the time must not keep anybody from judging.
        if self._disk.judged_at == self._disk.scanned_at:
            return
        self._disk.judged_at = self._disk.scanned_at
        limit = self.watched.limits.disk_bytes
        written = {pid: written_bytes(pid) for pid in jobs}
        growth = {pid: count - self._written.get(pid, 0) for pid, count in written.items()}
        self._written = written
        if self._disk.used <= limit:
            self._disk.killed_at_used = 0
            return
        # What was written stays, so that somebody can save it; only going on writing is punished again.
        if self._disk.is_whole and self._disk.used <= self._disk.killed_at_used:
            return
        if not jobs:
            return
        writer = max(growth, key=lambda pid: growth[pid])
        # Making empty files is no writing the kernel tells of: then nobody is known, and all jobs are the writer.
        is_known = growth[writer] > 0
        session = jobs[writer].session
        self._kill_growing(lambda p: not is_known or p.session == session)
        self._disk.killed_at_used = self._disk.used
        self._record("disk", jobs[writer], self._disk.used, limit)

    def _watch_control_dir(self, jobs: dict[int, Process]) -> None:
        usage = usage_of(self.watched.control_dir)
        if usage.size_bytes <= _CONTROL_BYTES and usage.is_whole:
            return
        # Who wrote there is not told (it may be a tmpfs), and nobody has any business to: all jobs go, and their files.
        self._kill_growing(lambda _: True)
        with contextlib.suppress(OSError):
            remove_trees([path for path in self.watched.control_dir.iterdir() if path.name != "in.sock"])
        self._record("disk", next(iter(jobs.values()), None), usage.size_bytes, _CONTROL_BYTES)

    def _is_scan_due(self) -> bool:
        """Walking the tree costs; the free space of the file system tells for nothing whether something may have
        grown.
        """
        now = time.monotonic()
        if now - self._disk.scanned_at < self._disk.scan_s / _SCAN_SHARE:
            return False
        if now - self._disk.scanned_at > _SCAN_EVERY_S:
            return True
        room = self.watched.limits.disk_bytes - self._disk.used
        return self._disk.free_at_scan - _free_bytes(self.watched.disk_dirs[0]) > max(room // 2, 1 << 20)

    def _scan(self, processes: dict[int, Process]) -> None:
        started = time.monotonic()
        free = _free_bytes(self.watched.disk_dirs[0])
        usages = [usage_of(folder) for folder in self.watched.disk_dirs]
        used = sum(usage.size_bytes for usage in usages)
        self._disk.is_whole = all(usage.is_whole for usage in usages)
        if not self._disk.is_whole:
            # What hides from being counted is taken for too much.
            used = max(used, self.watched.limits.disk_bytes + 1)
        used += unlinked_bytes(processes, self._devices()) + self._filled
        now = time.monotonic()
        self._disk.used, self._disk.free_at_scan = used, free
        self._disk.scanned_at, self._disk.scan_s = now, now - started

    def _devices(self) -> set[int]:
        devices = {self.watched.disk_dirs[0].stat().st_dev}
        for view in self.watched.disk_views:
            with contextlib.suppress(OSError):
                devices.add(os.stat(view).st_dev)  # noqa: PTH116 - of a process that may end any time
        return devices

    def _record(self, limit: str, process: Process | None, used: int, allowed: int) -> None:
        self.kill_count += 1
        self.kills.append(
            Kill(
                at=iso(datetime.now(UTC)),
                limit=limit,
                pid=process.pid if process else 0,
                command=harmless_line(process.command, limit=32) if process else "",
                used=used,
                allowed=allowed,
            )
        )


def _tasks_by_session(jobs: dict[int, Process]) -> Counter[int]:
    counts: Counter[int] = Counter()
    for process in jobs.values():
        counts[process.session] += process.tasks
    return counts


def _free_bytes(folder: Path) -> int:
    info = os.statvfs(folder)
    return info.f_bfree * info.f_frsize + info.f_ffree * INODE_BYTES
