"""Limits in numbers, and control groups of every kind of system as files."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from sbxtui.localcloud.cgroups import Cgroup, Hierarchies, find_hierarchies, remove_abandoned
from sbxtui.localcloud.limits import MIB, Limits, processors_for
from sbxtui.localcloud.spec import SandboxSpec

MOUNTS_V2 = "31 24 0:27 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
MOUNTS_HYBRID = (
    "40 24 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    "41 24 0:31 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
    "42 24 0:32 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n"
    "43 24 0:33 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
)


def limits_of(tmp_path: Path, **sizes: int) -> Limits:
    """Limits of a sandbox of 512 MiB unless told otherwise."""
    values = {"memory_mib": 512, "vcpus": 2, "disk_mib": 100, "pids_max": 64, "tmpfs_mib": 128} | sizes
    paths = {name: tmp_path / name for name in ("sandbox_dir", "control_dir", "keeper_socket")}
    return Limits.of(SandboxSpec(sandbox_id="one", image_name="base", runtime="process", **values, **paths))  # type: ignore[arg-type]  # the two dicts have one type each


@pytest.mark.parametrize("memory_mib", [64, 128, 512, 8192])
def test_files_in_memory_never_take_more_than_half_of_it(memory_mib: int, tmp_path: Path) -> None:
    limits = limits_of(tmp_path, memory_mib=memory_mib, tmpfs_mib=100_000)
    assert 0 < limits.tmp_bytes + limits.shm_bytes <= memory_mib * MIB // 2


def test_a_full_task_table_leaves_the_guest_room(tmp_path: Path) -> None:
    limits = limits_of(tmp_path, pids_max=64)
    assert limits.pids_ceiling > limits.pids == 64


@pytest.mark.parametrize(("vcpus", "count"), [(0.5, 1), (1, 1), (1.5, 2), (1000, 1000)])
def test_a_sandbox_without_a_cgroup_gets_whole_processors(vcpus: float, count: int) -> None:
    chosen = processors_for(vcpus)
    assert chosen <= os.sched_getaffinity(0)
    assert len(chosen) == min(count, len(os.sched_getaffinity(0)))


def test_hierarchies_are_read_from_the_mount_table() -> None:
    pure, mixed = find_hierarchies(MOUNTS_V2), find_hierarchies(MOUNTS_HYBRID)
    assert (dict(pure.v1), pure.unified) == ({}, Path("/sys/fs/cgroup"))
    assert mixed.v1 == {"memory": Path("/sys/fs/cgroup/memory"), "cpu": Path("/sys/fs/cgroup/cpu,cpuacct")}
    assert mixed.unified == Path("/sys/fs/cgroup/unified")


@pytest.mark.root
def test_version_two_gets_every_limit_in_one_group(tmp_path: Path) -> None:
    mount, leaf = tmp_path, tmp_path / "sbx" / "home" / "one"
    leaf.mkdir(parents=True)
    for folder in (mount, mount / "sbx", mount / "sbx" / "home"):
        (folder / "cgroup.subtree_control").touch()
    for name in ("memory.max", "memory.swap.max", "pids.max", "cpu.max", "cgroup.procs"):
        (leaf / name).touch()
    controllers = frozenset({"memory", "pids", "cpu", "io"})
    limits = limits_of(tmp_path)
    group = Cgroup.create("sbx/home", "one", limits, Hierarchies({}, mount, controllers))
    assert set(group.dirs) == {"unified", "memory", "pids", "cpu"}
    assert (leaf / "memory.max").read_text() == str(512 * MIB)
    assert (leaf / "memory.swap.max").read_text() == "0"
    assert (leaf / "pids.max").read_text() == str(limits.pids_ceiling)
    assert (leaf / "cpu.max").read_text() == "200000 100000"
    assert (mount / "sbx" / "cgroup.subtree_control").read_text().startswith("+cpu")


@pytest.mark.root
def test_a_controller_the_kernel_refuses_is_left_out_and_others_hold(tmp_path: Path) -> None:
    leaf = tmp_path / "pids" / "sbx" / "home" / "one"
    leaf.mkdir(parents=True)
    (leaf / "pids.max").touch()
    mounts = {"memory": tmp_path / "memory", "pids": tmp_path / "pids"}
    group = Cgroup.create("sbx/home", "one", limits_of(tmp_path), Hierarchies(mounts, None, frozenset()))
    assert set(group.dirs) == {"pids"}
    assert group.memory_bytes() is None


@pytest.mark.root
@pytest.mark.parametrize("version", [1, 2])
def test_a_group_is_frozen_and_killed_by_either_version(version: int, tmp_path: Path) -> None:
    found = find_hierarchies()
    wanted = Hierarchies(found.v1, None, frozenset()) if version == 1 else Hierarchies({}, found.unified, frozenset())
    group = Cgroup.create("sbx/test-freeze", f"one-{os.getpid()}-{version}", limits_of(tmp_path), wanted)
    if not group.can_freeze:
        group.remove()
        pytest.skip(f"this system has no version {version} freezer")
    process = subprocess.Popen(["sleep", "60"])
    for path in set(group.dirs.values()):
        (path / "cgroup.procs").write_text(str(process.pid))
    group.freeze(is_frozen=True)
    group.freeze(is_frozen=False)
    group.freeze(is_frozen=True)
    assert group.members() == [process.pid]
    group.kill()
    assert process.wait(5) == -signal.SIGKILL
    assert group.remove()


@pytest.mark.root
def test_a_real_group_is_made_limited_and_removed(tmp_path: Path) -> None:
    group = Cgroup.create("sbx/test-limits", f"one-{os.getpid()}", limits_of(tmp_path))
    if not group.dirs:
        pytest.skip("this system lets root make no control group")
    try:
        assert group.members() == []
        if "pids" in group.dirs:
            assert int((group.dirs["pids"] / "pids.max").read_text()) == limits_of(tmp_path).pids_ceiling
    finally:
        assert group.remove()
    assert not any(path.exists() for path in group.dirs.values())


@pytest.mark.root
def test_empty_groups_of_homes_that_are_gone_are_removed_and_used_ones_kept(tmp_path: Path) -> None:
    empty = Cgroup.create(f"sbx/test-gone-{os.getpid()}", "empty", limits_of(tmp_path))
    used = Cgroup.create(f"sbx/test-gone-{os.getpid()}", "used", limits_of(tmp_path))
    if not empty.dirs:
        pytest.skip("this system lets root make no control group")
    process = subprocess.Popen(["sleep", "60"])
    try:
        for path in set(used.dirs.values()):
            (path / "cgroup.procs").write_text(str(process.pid))
        remove_abandoned(older_than_s=3600)
        assert all(path.exists() for path in empty.dirs.values())
        folder = f"sbx/test-gone-{os.getpid()}"
        remove_abandoned(older_than_s=-1, folder=folder)
        assert not any(path.exists() for path in empty.dirs.values())
        assert all(path.exists() for path in used.dirs.values())
    finally:
        process.kill()
        process.wait()
        assert used.remove()
