"""What a sandbox is shown of itself where its kernel tells of this machine: its own `/proc/meminfo`, and its disk.

Programs size their heaps by what the first tells; the second is for the guest, for file systems here are shared or tell
no size. Both are files of the host that are bound there read-only, written again in place as the use changes. Only what
asks the kernel by `sysinfo` or `statfs` still hears of something else.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from sbxtui.localcloud.spec import SandboxSpec

_STEP_BYTES = 1 << 20
# Of kB and bytes: a text must not change its length, whatever the use.
_DIGITS = 14
# What `free` and its like insist on; a sandbox has no swap, and its caches count as free.
_ZEROES = ("Buffers", "Cached", "SwapCached", "SwapTotal", "SwapFree", "Shmem", "Slab", "SReclaimable", "SUnreclaim")
# In the sandbox.
MEMINFO, DISK_USED = "/proc/meminfo", "/opt/sbx/disk_used"


@dataclass(slots=True)
class ShownUse:
    """The files of one sandbox; `memory_bytes` is its limit."""

    folder: Path
    memory_bytes: int
    _memory_used: int = 0
    _disk_used: int = 0
    _disk_seen: int = 0

    @classmethod
    def of(cls, spec: SandboxSpec) -> ShownUse:
        """That of a spec, whether it was made or not."""
        return cls(spec.sandbox_dir / "shown", spec.memory_mib << 20)

    @property
    def binds(self) -> dict[str, str]:
        """Paths inside, and the files of the host that are there read-only."""
        return {MEMINFO: str(self.folder / "meminfo"), DISK_USED: str(self.folder / "disk_used")}

    def make(self) -> None:
        """Write them as of a sandbox that uses nothing yet.

        Raises:
            OSError: They cannot be written.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        # Whatever the umask: the sandbox's own uid reads them.
        self.folder.chmod(0o755)
        for name, text in (("meminfo", self._meminfo(0)), ("disk_used", _number(0))):
            file = self.folder / name
            file.unlink(missing_ok=True)
            file.write_text(text)
            file.chmod(0o644)

    def show(self, *, memory_used: int, disk_used: int) -> None:
        """Tell another use in bytes, if it differs by a MiB; of the disk also one that stays. Texts keep their length,
        so that no reader sees half of one.
        """
        if abs(memory_used - self._memory_used) >= _STEP_BYTES:
            self._memory_used = memory_used
            self._write("meminfo", self._meminfo(memory_used))
        has_settled, self._disk_seen = disk_used == self._disk_seen != self._disk_used, disk_used
        if has_settled or abs(disk_used - self._disk_used) >= _STEP_BYTES:
            self._disk_used = disk_used
            self._write("disk_used", _number(disk_used))

    def _write(self, name: str, text: str) -> None:
        # On a full disk, or where it was removed, the sandbox sees an older figure.
        with contextlib.suppress(OSError):
            descriptor = os.open(self.folder / name, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                os.pwrite(descriptor, text.encode(), 0)
            finally:
                os.close(descriptor)

    def _meminfo(self, used_bytes: int) -> str:
        free_bytes = max(0, self.memory_bytes - used_bytes)
        sizes = {"MemTotal": self.memory_bytes, "MemFree": free_bytes, "MemAvailable": free_bytes}
        sizes |= dict.fromkeys(_ZEROES, 0)
        return "".join(f"{name + ':':<16}{size >> 10:>{_DIGITS}} kB\n" for name, size in sizes.items())


def _number(value: int) -> str:
    return f"{value:>{_DIGITS}}\n"
