"""What a keeper tells of its sandbox."""

from __future__ import annotations

import os
from dataclasses import dataclass

from sbxtui.localcloud.cgroups import Cgroup
from sbxtui.localcloud.keeper_end import Watch
from sbxtui.localcloud.limits import Limits
from sbxtui.localcloud.runtimes.base import Runtime
from sbxtui.localcloud.spec import ExitInfo, KeeperState, KeeperStatus


@dataclass(frozen=True, slots=True)
class KeeperFacts:
    """What only the keeper itself knows. `exit` is None until it has ended, the others are as in `Beginning`."""

    state: KeeperState
    exit: ExitInfo | None
    begun_from: str
    golden_key: str


def status_of(
    facts: KeeperFacts, watchdog: Watch | None, runtime: Runtime, limits: Limits, cgroup: Cgroup
) -> KeeperStatus:
    """Its status now."""
    memory_bytes = None if runtime.has_own_kernel else cgroup.memory_bytes()
    return KeeperStatus(
        state=facts.state,
        pid=os.getpid(),
        exit=facts.exit,
        memory_bytes=memory_bytes if memory_bytes is not None else watchdog.memory_used if watchdog else 0,
        disk_bytes=watchdog.disk_bytes() if watchdog else 0,
        pids=watchdog.pids_used if watchdog else 0,
        kills=tuple(watchdog.kills) if watchdog else (),
        kill_count=watchdog.kill_count if watchdog else 0,
        runtime=runtime.id,
        isolation=runtime.isolation,
        limits=limit_words(limits, cgroup, runtime),
        begun_from=facts.begun_from,
        golden_key=facts.golden_key,
    )


def filled(watchdog: Watch | None) -> dict[str, str]:
    """The answer to who wants the sandbox's disk full."""
    if watchdog is None:
        return {"error": "the sandbox does not run"}
    watchdog.fill_disk()
    return {}


def limit_words(limits: Limits, cgroup: Cgroup, runtime: Runtime) -> dict[str, str]:
    """What enforces each limit here, for people."""
    if runtime.has_own_kernel:
        pids = "the sandbox's own control group"
        memory = "watchdog inside" + (", cgroup above it" if "memory" in cgroup.dirs else ", the host's above it")
        cpu = "cgroup" if "cpu" in cgroup.dirs else "affinity"
        return {"memory": memory, "pids": pids, "cpu": cpu, "disk": "watchdog", "tmpfs": "size of the mount"}
    if runtime.id == "microvm":
        machine = "its virtual machine"
        return {"memory": machine, "pids": "rlimit", "cpu": machine, "disk": "quota", "tmpfs": "size of the mount"}
    pids = "rlimit and watchdog" if runtime.has_own_network else "watchdog"
    quota_cpus = len(os.sched_getaffinity(0))
    return {
        "memory": "cgroup" if "memory" in cgroup.dirs else "watchdog",
        "pids": "cgroup and watchdog" if "pids" in cgroup.dirs else pids,
        "cpu": "cgroup" if "cpu" in cgroup.dirs else "affinity" if limits.vcpus < quota_cpus else "all processors",
        "disk": "watchdog",
        "tmpfs": "size of the mount" if runtime.has_own_network else "counted as disk",
    }
