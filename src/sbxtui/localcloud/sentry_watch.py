"""Keeps a sandbox with a kernel of its own within its limits, as far as the host must: the disk, and memory as the last
resort. Who is over the limit of memory or tasks is ended from inside, and told in a file; nothing in that is trusted.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import stat
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sbxtui.core.kills import Kill
from sbxtui.core.text import harmless_line, iso
from sbxtui.localcloud.keeper_place import remove_trees
from sbxtui.localcloud.keeper_processes import child_pids, descendants, read_process, unlinked_bytes
from sbxtui.localcloud.limits import MIB, Limits
from sbxtui.localcloud.runtimes.base import OwnKernel
from sbxtui.localcloud.shown import ShownUse
from sbxtui.localcloud.treewalk import usage_of

TICK_S = 0.1
_IDLE_TICK_S = 0.5
_KILLS_KEPT = 64
_KILLS_FILE_BYTES = 256 * 1024
_CONTROL_BYTES = 1 << 20
_DISK_SLACK_BYTES = 16 * MIB
# What belongs into the control folder: its type, and how much it may take.
_OF_THE_GUEST = {
    "in.sock": (stat.S_IFSOCK, 4096),
    "kills": (stat.S_IFREG, _KILLS_FILE_BYTES + 8192),
    "open": (stat.S_IFREG, 4096),
}
# Numbers a note may tell; more is no size of anything.
_MOST_BYTES, _MOST_PIDS = 1 << 53, 1 << 31
# Looking for files without a name costs a look at every open one, of which a kernel has a thousand: it is done when
# their disk has become fuller by this, else now and then.
_UNLINKED_EVERY_S, _IDLE_UNLINKED_EVERY_S = 0.5, 10.0
_FULLER_BYTES = 64 * 1024
# A kernel's own memory, and what is gone before the sandbox itself has ended who takes it.
_KERNEL_BYTES = 96 * MIB
_HEAP_BYTES, _HEAP_STEP_BYTES = 32 * MIB, 8 * MIB
# What a kernel needs for a process at the most; there may be only so many.
_TASK_BYTES = 256 * 1024
_COUNT_SHARE = 0.1
# Between two requests to end whoever fills the disk: the first must have had its time.
_ASK_PAUSE_S = 0.5


@dataclass(slots=True)
class SentryWatch:
    """Call `tick` every `pause_s` seconds while the sandbox runs (not while it is paused)."""

    kernel: OwnKernel
    limits: Limits
    control_dir: Path
    kill_sandbox: Callable[[], None]
    shown: ShownUse
    kills: deque[Kill] = field(default_factory=lambda: deque(maxlen=_KILLS_KEPT))
    kill_count: int = 0
    memory_used: int = 0
    pids_used: int = 0
    _memory_file: Path | None = None
    _kills_read: int = 0
    _asked_at: float = 0.0
    _disk_told: int = 0
    _heap_told: int = 0
    _is_busy: bool = True
    _control_used: int = 0
    _unlinked: int = 0
    _unlinked_at: float = 0.0
    _free_then: int = 0
    _was_control_over: bool = False
    _count: int = 0
    _counted_at: float = 0.0
    _count_s: float = 0.0
    _filled: int = 0

    @property
    def pause_s(self) -> float:
        """Until the next tick: short while anything grows."""
        return TICK_S if self._is_busy else _IDLE_TICK_S

    def disk_bytes(self) -> int:
        """What the sandbox's files take on the host's disk, those beside its socket among them."""
        total = self._control_used + self._filled
        for folder in self.kernel.disk_dirs:
            with contextlib.suppress(OSError), os.scandir(folder) as entries:
                for entry in entries:
                    if entry.name.startswith(".gvisor.filestore"):
                        total += entry.stat(follow_symlinks=False).st_blocks * 512
        return total

    def fill_disk(self) -> None:
        """Take the disk for full from now on, as if something had filled it: who writes more is ended."""
        self._filled += max(0, self.limits.disk_bytes + _DISK_SLACK_BYTES - self.disk_bytes())

    def tick(self) -> None:
        """Look once and act."""
        before = self.memory_used, self.pids_used
        self._watch_memory()
        self._read_kills()
        self._watch_control_dir()
        used = self.disk_bytes()
        self._watch_disk(used)
        self.shown.show(memory_used=self.memory_used, disk_used=used)
        self.pids_used = self._stubs()
        self._is_busy = before != (self.memory_used, self.pids_used)

    def note_end(self) -> bool:
        """Look once more, after the sandbox ended: whether something was ended for a limit since the last tick."""
        count = self.kill_count
        self._read_kills()
        return self.kill_count > count

    def _stubs(self) -> int:
        """Address spaces the kernel keeps on the host: about as many as there are processes inside.

        Counting them takes a share of the time and no more: of a thousand, it would have a processor to itself, which
        whoever ends them inside needs.
        """
        began_at = time.monotonic()
        if began_at - self._counted_at >= self._count_s / _COUNT_SHARE:
            self._count = len(descendants(self.kernel.pid))
            self._counted_at = time.monotonic()
            self._count_s = self._counted_at - began_at
        return self._count

    def _watch_memory(self) -> None:
        self.memory_used = self._guest_bytes()
        heap = _anonymous_bytes(self.kernel.pid) - self.pids_used * _TASK_BYTES
        # Names of files are in there, each with about 2 KiB: who may have more memory may have more of them.
        allowed = _HEAP_BYTES + self.limits.memory_bytes // 2
        used = self.memory_used + max(0, heap - allowed)
        if used > 2 * self.limits.memory_bytes + _KERNEL_BYTES:
            self._record("memory", 0, "", used, self.limits.memory_bytes)
            self.kill_sandbox()
        elif heap > max(allowed, self._heap_told) and time.monotonic() - self._asked_at > _ASK_PAUSE_S:
            # Files without content, names, sockets: they take no page of the sandbox's, but its kernel's. What is there
            # stays, and a kernel gives memory back late; only going on is punished again.
            self._heap_told = heap + _HEAP_STEP_BYTES
            self._ask(signal.SIGUSR2)

    def _guest_bytes(self) -> int:
        """Pages of the file that is the sandbox's memory."""
        with contextlib.suppress(OSError, StopIteration):
            if self._memory_file is None:
                folder = Path(f"/proc/{self.kernel.pid}/fd")
                self._memory_file = next(file for file in folder.iterdir() if "runsc-memory" in str(file.readlink()))
            return self._memory_file.stat().st_blocks * 512
        return self.memory_used

    def _read_kills(self) -> None:
        try:
            descriptor = os.open(self.control_dir / "kills", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return
        try:
            info = os.fstat(descriptor)
            if not stat.S_ISREG(info.st_mode):
                return
            size = min(info.st_size, _KILLS_FILE_BYTES)
            text = os.pread(descriptor, size - self._kills_read, self._kills_read) if size > self._kills_read else b""
        finally:
            os.close(descriptor)
        whole = text[: text.rfind(b"\n") + 1]
        self._kills_read += len(whole)
        for line in whole.splitlines():
            with contextlib.suppress(ValueError, TypeError, AttributeError, OverflowError, RecursionError):
                self._take(json.loads(line))

    def _take(self, told: dict[str, Any]) -> None:
        limit = told.get("limit")
        if limit not in ("memory", "pids", "disk"):
            return
        used, allowed = (_bounded(told.get(name), _MOST_BYTES) for name in ("used", "allowed"))
        if limit == "disk":
            used, allowed = max(self._disk_told, self.limits.disk_bytes), self.limits.disk_bytes
        self._record(limit, _bounded(told.get("pid"), _MOST_PIDS), str(told.get("command") or ""), used, allowed)

    def _watch_disk(self, used: int) -> None:
        # Each of its disks is full at the limit by itself; both together take a little more.
        if used <= self.limits.disk_bytes + _DISK_SLACK_BYTES:
            self._disk_told = 0
            return
        # What was written stays, so that somebody can save it; only going on writing is punished again.
        if used <= self._disk_told or time.monotonic() - self._asked_at < _ASK_PAUSE_S:
            return
        if used > 2 * self.limits.disk_bytes + 64 * MIB:
            self._record("disk", 0, "", used, self.limits.disk_bytes)
            self.kill_sandbox()
            return
        self._disk_told = used
        self._ask(signal.SIGUSR2)

    def _watch_control_dir(self) -> None:
        """Only root inside can write there, and has no business to: a second time ends the sandbox."""
        usage = usage_of(self.control_dir)
        self._control_used = usage.size_bytes + self._unlinked_bytes()
        if self._control_used <= _CONTROL_BYTES and usage.is_whole:
            return
        if self._was_control_over:
            self._record("disk", 0, "", self._control_used, _CONTROL_BYTES)
            self.kill_sandbox()
        else:
            self._was_control_over = True
            self._ask(signal.SIGUSR2)
        with contextlib.suppress(OSError):
            remove_trees([path for path in self.control_dir.iterdir() if not _belongs(path)])

    def _unlinked_bytes(self) -> int:
        """Files of the control folder's disk that have no name any more and are held open."""
        now, free = time.monotonic(), _free_bytes(self.control_dir)
        is_fuller = self._free_then - free >= _FULLER_BYTES
        if now - self._unlinked_at >= (_UNLINKED_EVERY_S if is_fuller else _IDLE_UNLINKED_EVERY_S):
            self._unlinked_at, self._free_then = now, free
            with contextlib.suppress(OSError):
                self._unlinked = unlinked_bytes(self._openers(), {self.control_dir.stat().st_dev})
        return self._unlinked

    def _openers(self) -> list[int]:
        """Who opens files of the host for the sandbox: its kernel, and helpers that were started beside it."""
        kernel = read_process(self.kernel.pid)
        beside = child_pids(kernel.parent) if kernel is not None and kernel.parent not in (1, os.getpid()) else []
        return [self.kernel.pid, *(pid for pid in beside if pid != self.kernel.pid)]

    def _ask(self, number: signal.Signals) -> None:
        self._asked_at = time.monotonic()
        # Reaped with all other children of the keeper; the sandbox's first process acts on it.
        self.kernel.runsc.signal(number)

    def _record(self, limit: str, pid: int, command: str, used: int, allowed: int) -> None:
        self.kill_count += 1
        at = iso(datetime.now(UTC))
        self.kills.append(Kill(at, limit, pid, harmless_line(command, limit=32), used, allowed))


def _belongs(path: Path) -> bool:
    kind, size_bytes = _OF_THE_GUEST.get(path.name, (0, 0))
    try:
        info = path.lstat()
    except OSError:
        return False
    return stat.S_IFMT(info.st_mode) == kind and info.st_blocks * 512 <= size_bytes


def _free_bytes(folder: Path) -> int:
    with contextlib.suppress(OSError):
        info = os.statvfs(folder)
        return info.f_bfree * info.f_frsize
    return 0


def _bounded(told: Any, most: int) -> int:
    return min(max(int(told or 0), 0), most)


def _anonymous_bytes(pid: int) -> int:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/status", "rb") as file:  # noqa: PTH123 - ten times a second
        for line in file:
            if line.startswith(b"RssAnon:"):
                return int(line.split()[1]) * 1024
    return 0
