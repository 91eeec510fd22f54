"""What a sandbox may use, in the units its enforcers take. Enforcement itself: `cgroups` (root) and `watchdog`
(everybody).
"""

from __future__ import annotations

import math
import os
import resource
from dataclasses import dataclass

from sbxtui.localcloud.spec import SandboxSpec

MIB = 1024 * 1024
# Tasks the guest and its runtime hold beside the jobs, so that a full table still leaves them room to answer.
GUEST_PIDS_RESERVE = 16
_SHM_MAX_MIB = 64
_OPEN_FILES = 65_536


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes in bytes. `pids` is what jobs may fill; the hard ceiling lies `GUEST_PIDS_RESERVE` above it."""

    memory_bytes: int
    pids: int
    vcpus: float
    disk_bytes: int
    tmp_bytes: int
    shm_bytes: int

    @classmethod
    def of(cls, spec: SandboxSpec) -> Limits:
        """The limits of a spec.

        A file in a tmpfs is memory no kill gives back: `/tmp` and `/dev/shm` together get at most half, so that the
        guest always has the rest.
        """
        shm_mib = min(_SHM_MAX_MIB, max(1, spec.memory_mib // 8))
        tmp_mib = min(spec.tmpfs_mib, spec.memory_mib // 2 - shm_mib)
        return cls(
            memory_bytes=spec.memory_mib * MIB,
            pids=spec.pids_max,
            vcpus=spec.vcpus,
            disk_bytes=spec.disk_mib * MIB,
            tmp_bytes=tmp_mib * MIB,
            shm_bytes=shm_mib * MIB,
        )

    @property
    def pids_ceiling(self) -> int:
        """No task is started beyond it."""
        return self.pids + GUEST_PIDS_RESERVE


def processors_for(vcpus: float) -> frozenset[int]:
    """Which of the processors this process may use to give a sandbox without a cgroup: whole ones, the nearest
    above.
    """
    usable = sorted(os.sched_getaffinity(0))
    count = max(1, math.ceil(vcpus))
    if count >= len(usable):
        return frozenset(usable)
    # Spread sandboxes by pid so that they do not all sit on the first processor.
    start = os.getpid() % len(usable)
    return frozenset(usable[(start + offset) % len(usable)] for offset in range(count))


def apply_process_limits(limits: Limits, *, has_memory_cgroup: bool, has_cpu_cgroup: bool) -> None:
    """Limit the calling process and all it will start; called between fork and exec.

    RLIMIT_NPROC is not set here: before the user namespace exists it counts every process of the user.
    """
    _lower(resource.RLIMIT_CORE, 0)
    _lower(resource.RLIMIT_FSIZE, limits.disk_bytes)
    _lower(resource.RLIMIT_NOFILE, _OPEN_FILES)
    _lower(resource.RLIMIT_MEMLOCK, 64 * 1024)
    if not has_memory_cgroup:
        # Twice the memory: reserving more than one touches is usual, and the watchdog counts what is touched.
        _lower(resource.RLIMIT_DATA, 2 * limits.memory_bytes)
    if not has_cpu_cgroup:
        os.sched_setaffinity(0, processors_for(limits.vcpus))


def _lower(which: int, value: int) -> None:
    _, hard = resource.getrlimit(which)
    ceiling = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(which, (ceiling, ceiling))
