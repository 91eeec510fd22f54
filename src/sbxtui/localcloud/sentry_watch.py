"""Keeps a sandbox with a kernel of its own within its limits, as far as the host must: the disk, and memory as the last
resort. Who is over the limit of memory or tasks is ended from inside, and told in a file; nothing in that is trusted.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
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
from sbxtui.localcloud.keeper_processes import descendants
from sbxtui.localcloud.limits import MIB, Limits
from sbxtui.localcloud.runtimes.base import OwnKernel
from sbxtui.localcloud.treewalk import usage_of

TICK_S = 0.1
_IDLE_TICK_S = 0.5
_KILLS_KEPT = 64
_KILLS_FILE_BYTES = 256 * 1024
_CONTROL_BYTES = 1 << 20
_OF_THE_GUEST = ("in.sock", "kills", "open")
# A kernel's own memory, and what is gone before the sandbox itself has ended who takes it.
_KERNEL_BYTES = 96 * MIB
# Between two requests to end whoever fills the disk: the first must have had its time.
_ASK_PAUSE_S = 0.5


@dataclass(slots=True)
class SentryWatch:
    """Call `tick` every `pause_s` seconds while the sandbox runs (not while it is paused)."""

    kernel: OwnKernel
    limits: Limits
    control_dir: Path
    kill_sandbox: Callable[[], None]
    kills: deque[Kill] = field(default_factory=lambda: deque(maxlen=_KILLS_KEPT))
    kill_count: int = 0
    memory_used: int = 0
    pids_used: int = 0
    _memory_file: Path | None = None
    _kills_read: int = 0
    _asked_at: float = 0.0
    _disk_told: int = 0
    _is_busy: bool = True

    @property
    def pause_s(self) -> float:
        """Until the next tick: short while anything grows."""
        return TICK_S if self._is_busy else _IDLE_TICK_S

    def disk_bytes(self) -> int:
        """What the sandbox's files take on the host's disk."""
        total = 0
        with contextlib.suppress(OSError):
            for entry in os.scandir(self.kernel.overlay_dir):
                if entry.name.startswith(".gvisor.filestore"):
                    total += entry.stat(follow_symlinks=False).st_blocks * 512
        return total

    def tick(self) -> None:
        """Look once and act."""
        before = self.memory_used, self.pids_used
        self._watch_memory()
        self._read_kills()
        self._watch_disk()
        self._watch_control_dir()
        self.pids_used = self._stubs()
        self._is_busy = before != (self.memory_used, self.pids_used)

    def note_end(self) -> bool:
        """Look once more, after the sandbox ended: whether something was ended for a limit since the last tick."""
        count = self.kill_count
        self._read_kills()
        return self.kill_count > count

    def _stubs(self) -> int:
        """Address spaces the kernel keeps on the host: about as many as there are processes inside."""
        return len(descendants(self.kernel.pid))

    def _watch_memory(self) -> None:
        self.memory_used = self._guest_bytes()
        heap = _anonymous_bytes(self.kernel.pid)
        used = self.memory_used + max(0, heap - _KERNEL_BYTES)
        if used > 2 * self.limits.memory_bytes + _KERNEL_BYTES:
            self._record("memory", 0, "", used, self.limits.memory_bytes)
            self.kill_sandbox()
        elif heap > _KERNEL_BYTES and time.monotonic() - self._asked_at > _ASK_PAUSE_S:
            # Files without content, names, sockets: they take no page of the sandbox's, but its kernel's.
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
            size = min(os.fstat(descriptor).st_size, _KILLS_FILE_BYTES)
            text = os.pread(descriptor, size - self._kills_read, self._kills_read) if size > self._kills_read else b""
        finally:
            os.close(descriptor)
        whole = text[: text.rfind(b"\n") + 1]
        self._kills_read += len(whole)
        for line in whole.splitlines():
            with contextlib.suppress(ValueError, TypeError, AttributeError):
                self._take(json.loads(line))

    def _take(self, told: dict[str, Any]) -> None:
        limit = told.get("limit")
        if limit not in ("memory", "pids", "disk"):
            return
        used, allowed = int(told.get("used") or 0), int(told.get("allowed") or 0)
        if limit == "disk":
            used, allowed = max(self._disk_told, self.limits.disk_bytes), self.limits.disk_bytes
        self._record(limit, int(told.get("pid") or 0), str(told.get("command") or ""), used, allowed)

    def _watch_disk(self) -> None:
        used = self.disk_bytes()
        if used <= self.limits.disk_bytes:
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
        usage = usage_of(self.control_dir)
        if usage.size_bytes <= _CONTROL_BYTES and usage.is_whole:
            return
        # Only root inside can write there, and has no business to.
        self._ask(signal.SIGUSR2)
        with contextlib.suppress(OSError):
            remove_trees([path for path in self.control_dir.iterdir() if path.name not in _OF_THE_GUEST])

    def _ask(self, number: signal.Signals) -> None:
        self._asked_at = time.monotonic()
        # Reaped with all other children of the keeper; the sandbox's first process acts on it.
        self.kernel.runsc.signal(number)

    def _record(self, limit: str, pid: int, command: str, used: int, allowed: int) -> None:
        self.kill_count += 1
        at = iso(datetime.now(UTC))
        self.kills.append(Kill(at, limit, pid, harmless_line(command, limit=32), used, allowed))


def _anonymous_bytes(pid: int) -> int:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/status", "rb") as file:  # noqa: PTH123 - ten times a second
        for line in file:
            if line.startswith(b"RssAnon:"):
                return int(line.split()[1]) * 1024
    return 0
