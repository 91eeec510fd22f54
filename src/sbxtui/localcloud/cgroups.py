"""Control groups of sandboxes: version 1, version 2 and the mix of both, where the system lets us have them.

Every sandbox gets one group per hierarchy, named `sbx/FOLDER/SANDBOX`, FOLDER standing for the home. Where groups
cannot be made (a plain user, a read-only mount) there are none, and the watchdog and rlimits stand in.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sbxtui.localcloud.limits import Limits

_LIMITING = ("memory", "pids", "cpu")
_CONTROLLERS = (*_LIMITING, "freezer")
_PERIOD_US = 100_000
_GONE_TIMEOUT_S = 5.0
_EXPECTING_STEPS, _EXPECTING_STEP_S = 8, 0.008


@dataclass(frozen=True, slots=True)
class Hierarchies:
    """Mount points: one per version-1 controller, and the unified one with the controllers it can hand down."""

    v1: Mapping[str, Path]
    unified: Path | None
    unified_controllers: frozenset[str]


def find_hierarchies(mountinfo: str | None = None) -> Hierarchies:
    """Read the hierarchies mounted here.

    Args:
        mountinfo: Text of `/proc/self/mountinfo`; None reads it.
    """
    text = mountinfo if mountinfo is not None else Path("/proc/self/mountinfo").read_text()
    v1: dict[str, Path] = {}
    unified: Path | None = None
    for line in text.splitlines():
        head, _, tail = line.partition(" - ")
        mount_point, kind = Path(head.split()[4]), tail.split()
        if kind[0] == "cgroup":
            v1.update({name: mount_point for name in kind[2].split(",") if name in _CONTROLLERS})
        elif kind[0] == "cgroup2" and unified is None:
            unified = mount_point
    controllers: frozenset[str] = frozenset()
    if unified is not None:
        with contextlib.suppress(OSError):
            controllers = frozenset((unified / "cgroup.controllers").read_text().split())
    return Hierarchies(v1, unified, controllers)


def folder_of(socket_dir: Path) -> str:
    """The group that holds all sandboxes whose keepers' sockets are in `socket_dir`."""
    return "sbx/" + str(socket_dir).strip("/").replace("-", "--").replace("/", "-")


@dataclass(slots=True)
class Cgroup:
    """One sandbox's groups. `dirs` maps a controller to its folder; "unified" is the version-2 folder, for freeze
    and kill.
    """

    dirs: dict[str, Path] = field(default_factory=dict)

    @classmethod
    def create(cls, folder: str, name: str, limits: Limits, hierarchies: Hierarchies | None = None) -> Cgroup:
        """Make the groups and set their limits; controllers that cannot be had are left out of `dirs`."""
        found = hierarchies or find_hierarchies()
        group = cls()
        if os.geteuid() != 0:
            return group
        for controller in _LIMITING:
            group._create_v1(controller, found, folder, name)
        if found.unified is not None:
            group._create_unified(found, folder, name)
        if not group.can_freeze:
            # Each group costs who joins it a wait for all processors.
            group._create_v1("freezer", found, folder, name)
        for controller in _LIMITING:
            if controller in group.dirs:
                group._limit(controller, limits)
        return group

    @classmethod
    def find(cls, folder: str, name: str) -> Cgroup:
        """The groups an earlier keeper made and left."""
        if os.geteuid() != 0:
            return cls()
        found = find_hierarchies()
        places = {**found.v1, **({"unified": found.unified} if found.unified else {})}
        return cls({key: mount / folder / name for key, mount in places.items() if (mount / folder / name).is_dir()})

    def _create_v1(self, controller: str, found: Hierarchies, folder: str, name: str) -> None:
        if controller not in found.v1:
            return
        path = found.v1[controller] / folder / name
        with contextlib.suppress(OSError):
            path.mkdir(parents=True, exist_ok=True)
            self.dirs[controller] = path

    def _create_unified(self, found: Hierarchies, folder: str, name: str) -> None:
        assert found.unified is not None
        path = found.unified / folder / name
        wanted = [c for c in _LIMITING if c not in self.dirs and c in found.unified_controllers]
        with contextlib.suppress(OSError):
            path.mkdir(parents=True, exist_ok=True)
            self.dirs["unified"] = path
            parent = found.unified
            for part in ("", *folder.split("/")):
                parent = parent / part
                for controller in wanted:
                    # Refused (EBUSY) where the top group holds processes, as in a container: then there is no such
                    # limit.
                    _write(parent / "cgroup.subtree_control", f"+{controller}")
            self.dirs.update(dict.fromkeys(wanted, path))

    def _limit(self, controller: str, limits: Limits) -> None:
        path = self.dirs[controller]
        is_v2 = path == self.dirs.get("unified")
        try:
            match controller:
                case "memory":
                    _write(path / ("memory.max" if is_v2 else "memory.limit_in_bytes"), str(limits.memory_bytes))
                    self._limit_swap(path, limits, is_v2=is_v2)
                case "pids":
                    _write(path / "pids.max", str(limits.pids_ceiling))
                case "cpu":
                    self._limit_cpu(path, limits, is_v2=is_v2)
        except OSError:
            del self.dirs[controller]

    def _limit_swap(self, path: Path, limits: Limits, *, is_v2: bool) -> None:
        # Kernels without swap accounting lack these files.
        with contextlib.suppress(OSError):
            if is_v2:
                _write(path / "memory.swap.max", "0")
            else:
                _write(path / "memory.swappiness", "0")
                _write(path / "memory.memsw.limit_in_bytes", str(limits.memory_bytes))

    def _limit_cpu(self, path: Path, limits: Limits, *, is_v2: bool) -> None:
        quota_us = max(1000, int(limits.vcpus * _PERIOD_US))
        if is_v2:
            _write(path / "cpu.max", f"{quota_us} {_PERIOD_US}")
        else:
            _write(path / "cpu.cfs_period_us", str(_PERIOD_US))
            _write(path / "cpu.cfs_quota_us", str(quota_us))
        # Else all sandboxes together would weigh as much as one program, and start last on a busy machine.
        _weigh(path.parent, len(_matching(path.parent, "*/")), is_v2=is_v2)
        _weigh(path.parent.parent, len(_matching(path.parent.parent, "*/*/")), is_v2=is_v2)

    def join(self) -> None:
        """Move the calling process in.

        Raises:
            OSError: It was refused; the process may be in some of the groups.
        """
        for path in set(self.dirs.values()):
            _write(path / "cgroup.procs", "0")

    def members(self) -> list[int]:
        """Process ids in the group, of any of its hierarchies."""
        for path in self.dirs.values():
            with contextlib.suppress(OSError):
                return [int(pid) for pid in (path / "cgroup.procs").read_text().split()]
        return []

    @property
    def can_freeze(self) -> bool:
        """Whether the kernel stops the group as a whole."""
        return "freezer" in self.dirs or self._has_unified("cgroup.freeze")

    def freeze(self, *, is_frozen: bool) -> None:
        """Stop every member, and return when each did, or raise TimeoutError after 5 s; or let them go on, at once."""
        if self._has_unified("cgroup.freeze"):
            path = self.dirs["unified"]
            _write(path / "cgroup.freeze", "1" if is_frozen else "0")
            if is_frozen:
                _wait(lambda: "frozen 1" in (path / "cgroup.events").read_text())
            return
        path = self.dirs["freezer"]
        wanted = "FROZEN" if is_frozen else "THAWED"

        def is_reached() -> bool:
            # Version 1 may stall half frozen while members fork; writing again makes it go on.
            _write(path / "freezer.state", wanted)
            return (path / "freezer.state").read_text().strip() == wanted

        _wait(is_reached)

    def kill(self) -> None:
        """Kill every member, frozen or not; returns when none is left or after 5 s."""
        if self._has_unified("cgroup.kill"):
            with contextlib.suppress(OSError):
                _write(self.dirs["unified"] / "cgroup.kill", "1")
        deadline = time.monotonic() + _GONE_TIMEOUT_S
        while (pids := self.members()) and time.monotonic() < deadline:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if self.can_freeze:
                with contextlib.suppress(OSError, TimeoutError):
                    self.freeze(is_frozen=False)
            time.sleep(0.005)

    def memory_bytes(self) -> int | None:
        """Memory no reclaim gives back: anonymous pages and tmpfs files. None without the controller."""
        if "memory" not in self.dirs:
            return None
        stat = _numbers(self.dirs["memory"] / "memory.stat")
        anonymous = stat.get("anon", stat.get("total_rss", stat.get("rss", 0)))
        return anonymous + stat.get("shmem", stat.get("total_shmem", 0))

    def oom_kills(self) -> int:
        """Processes the kernel killed here because the memory limit was reached."""
        if "memory" not in self.dirs:
            return 0
        path = self.dirs["memory"]
        file = "memory.events" if path == self.dirs.get("unified") else "memory.oom_control"
        return _numbers(path / file).get("oom_kill", 0)

    def pids(self) -> int | None:
        """Tasks in the group; None without the controller."""
        if "pids" not in self.dirs:
            return None
        with contextlib.suppress(OSError, ValueError):
            return int((self.dirs["pids"] / "pids.current").read_text())
        return 0

    def remove(self) -> bool:
        """Remove the groups; False if members that cannot die yet keep one."""
        deadline = time.monotonic() + _GONE_TIMEOUT_S
        left = set(self.dirs.values())
        while left:
            for path in list(left):
                if _rmdir(path):
                    left.discard(path)
            if left and time.monotonic() > deadline:
                return False
            if left:
                time.sleep(0.005)
        for path in set(self.dirs.values()):
            # The folders above go with their last sandbox.
            for parent in (path.parent, path.parent.parent):
                with contextlib.suppress(OSError):
                    parent.rmdir()
        return True

    def _has_unified(self, file: str) -> bool:
        return "unified" in self.dirs and (self.dirs["unified"] / file).exists()


def _weigh(path: Path, programs: int, *, is_v2: bool) -> None:
    """Let a group have as much of a busy processor as so many programs."""
    with contextlib.suppress(OSError):
        if is_v2:
            _write(path / "cpu.weight", str(min(100 * programs, 10_000)))
        else:
            _write(path / "cpu.shares", str(min(1024 * programs, 262_144)))


def expect_joining() -> None:
    """Make joins within the next moment quick. Blocking, for about that moment; never fails.

    Whoever is the first to move a process between groups waits until each processor has noticed, for some 20 ms, and
    who comes right behind does not. So this one is moved to where it is, again and again, while what is to join is
    still being made. One thread does that for all who expect it.
    """
    if os.geteuid() != 0 or not _expecting.acquire(blocking=False):
        return
    try:
        own = next(_own_groups())
        for _ in range(_EXPECTING_STEPS):
            _write(own / "cgroup.procs", "0")
            time.sleep(_EXPECTING_STEP_S)
    except (OSError, ValueError, StopIteration):
        return
    finally:
        _expecting.release()


def _own_groups() -> Iterator[Path]:
    """The groups this process is in."""
    found = find_hierarchies()
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        mount = found.v1.get(names.partition(",")[0]) if names else found.unified
        if mount is not None:
            yield mount / path.lstrip("/")


_expecting = threading.Lock()


def names_in(folder: str) -> set[str]:
    """Sandboxes that have a group in `folder`, running or not."""
    found = find_hierarchies()
    mounts = [*found.v1.values(), *([found.unified] if found.unified else [])]
    names: set[str] = set()
    for mount in mounts:
        with contextlib.suppress(OSError):
            names |= {entry.name for entry in (mount / folder).iterdir() if entry.is_dir()}
    return names


def remove_folder(folder: str) -> None:
    """Remove a home's folder of groups with every empty group in it; the kernel keeps those that are used."""
    found = find_hierarchies()
    for mount in (*found.v1.values(), *([found.unified] if found.unified else [])):
        for path in (*_matching(mount / folder, "*/"), mount / folder, (mount / folder).parent):
            _rmdir(path)


def remove_abandoned(older_than_s: float, folder: str = "sbx/*") -> None:
    """Remove empty groups of any home that are old: their home may be gone, and then nobody else ever will.

    Args:
        older_than_s: Seconds a group must have had; a younger one may be about to be used.
        folder: Which homes' groups, with wildcards.
    """
    found = find_hierarchies()
    for mount in (*found.v1.values(), *([found.unified] if found.unified else [])):
        for leaf in _matching(mount, f"{folder}/*/"):
            with contextlib.suppress(OSError):
                if time.time() - leaf.stat().st_ctime > older_than_s and not (leaf / "cgroup.procs").read_text():
                    leaf.rmdir()
                    leaf.parent.rmdir()


def _matching(folder: Path, pattern: str) -> list[Path]:
    """What is there now; when a group goes in the middle of the look, nothing, and the next look finds the rest."""
    try:
        return list(folder.glob(pattern))
    except FileNotFoundError:
        return []


def _rmdir(path: Path) -> bool:
    try:
        path.rmdir()
    except FileNotFoundError:
        return True
    except OSError as exc:
        return exc.errno not in (errno.EBUSY, errno.ENOTEMPTY)
    return True


def _write(path: Path, text: str) -> None:
    # Not write_text: these files are opened without O_CREAT or O_TRUNC on purpose.
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def _numbers(path: Path) -> dict[str, int]:
    values: dict[str, int] = {}
    with contextlib.suppress(OSError):
        for line in path.read_text().splitlines():
            key, _, number = line.partition(" ")
            if number.isdigit():
                values[key] = int(number)
    return values


def _wait(is_reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _GONE_TIMEOUT_S
    # Most is reached at once.
    pause_s = 0.0001
    while not is_reached():
        if time.monotonic() > deadline:
            raise TimeoutError("the control group does not change its state")
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, 0.002)
