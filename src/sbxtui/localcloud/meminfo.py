"""A sandbox's own `/proc/meminfo`, where it shares the host's kernel: that one tells programs of memory they may not
use, and they size their heaps by it.

It is a file of the host that is bound there read-only, written again in place as the sandbox's use changes. Only what
asks the kernel by `sysinfo` still hears of the host.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from sbxtui.localcloud.spec import SandboxSpec

_STEP_BYTES = 1 << 20
# Of kB: the text must not change its length, whatever the use.
_DIGITS = 14
# What `free` and its like insist on; a sandbox has no swap, and its caches count as free.
_ZEROES = ("Buffers", "Cached", "SwapCached", "SwapTotal", "SwapFree", "Shmem", "Slab", "SReclaimable", "SUnreclaim")


@dataclass(slots=True)
class MemInfo:
    """The file of one sandbox; `total_bytes` is its limit."""

    path: Path
    total_bytes: int
    _shown_bytes: int = 0

    @classmethod
    def of(cls, spec: SandboxSpec) -> MemInfo:
        """That of a spec, whether it was made or not."""
        return cls(file_of(spec), spec.memory_mib << 20)

    def make(self) -> None:
        """Write it as of a sandbox that uses nothing yet.

        Raises:
            OSError: It cannot be written.
        """
        self.path.unlink(missing_ok=True)
        self.path.write_text(self._text(0))
        # Whatever the umask: the sandbox's own uid reads it.
        self.path.chmod(0o644)

    def show(self, used_bytes: int) -> None:
        """Tell another use, if it differs by a MiB; the text keeps its length, so that no reader sees half of it."""
        if abs(used_bytes - self._shown_bytes) < _STEP_BYTES:
            return
        self._shown_bytes = used_bytes
        # On a full disk, or where it was removed, the sandbox sees an older figure.
        with contextlib.suppress(OSError):
            descriptor = os.open(self.path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                os.pwrite(descriptor, self._text(used_bytes).encode(), 0)
            finally:
                os.close(descriptor)

    def _text(self, used_bytes: int) -> str:
        free_bytes = max(0, self.total_bytes - used_bytes)
        sizes = {"MemTotal": self.total_bytes, "MemFree": free_bytes, "MemAvailable": free_bytes}
        sizes |= dict.fromkeys(_ZEROES, 0)
        return "".join(f"{name + ':':<16}{size >> 10:>{_DIGITS}} kB\n" for name, size in sizes.items())


def file_of(spec: SandboxSpec) -> Path:
    """Where it lies on the host."""
    return spec.sandbox_dir / "meminfo"
