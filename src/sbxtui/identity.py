"""Which process is meant: a pid alone is reused, so owners are named by pid, start time and boot."""

from __future__ import annotations

import os
import sys
from functools import cache
from pathlib import Path

from sbxtui.core.values import dataclass


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """One process of one boot of one machine.

    `start_ticks` counts clock ticks since boot; 0 where the system tells none.
    """

    pid: int
    start_ticks: int
    boot_id: str

    def __str__(self) -> str:
        return f"{self.pid}:{self.start_ticks}:{self.boot_id}"

    @classmethod
    def parse(cls, text: str) -> ProcessIdentity:
        """Undo `str()`.

        Raises:
            ValueError: The text is no identity.
        """
        pid, start_ticks, boot_id = text.split(":", 2)
        return cls(int(pid), int(start_ticks), boot_id)

    @property
    def is_alive(self) -> bool:
        """Whether exactly this process still runs here; a zombie does not."""
        if self.boot_id != current_boot_id():
            return False
        if sys.platform != "linux":
            return _can_signal(self.pid)
        return _start_ticks(self.pid) == self.start_ticks != 0


def identity_of(pid: int) -> ProcessIdentity:
    """The identity of a process that runs now; `start_ticks` is 0 if it does not (then it is never alive)."""
    return ProcessIdentity(pid, _start_ticks(pid), current_boot_id())


def own_identity() -> ProcessIdentity:
    """The identity of the calling process."""
    return identity_of(os.getpid())


@cache
def current_boot_id() -> str:
    """Changes with every boot of this machine; empty where the system tells none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _start_ticks(pid: int) -> int:
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return 0
    # The second field is the command in parentheses and may hold anything; count from its last closing one.
    fields = stat[stat.rindex(b")") + 2 :].split()
    return 0 if fields[0] in (b"Z", b"X") else int(fields[19])


def _can_signal(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
