"""Metrics of a real guest, and the files of kernels this machine does not have."""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path

import httpx
import pytest

from sbxguest import probes
from sbxguest.state import GuestSettings, GuestState
from sbxguest.stats import ClockWatch, Sampler
from tests.support.guest_process import GuestProcess, running_guest

FIELDS = {
    "at", "boot_id", "server_id", "uptime_s", "source", "cpu", "memory", "swap", "disk", "net", "pids", "load",
    "oom_count", "open_files", "clock",
}  # fmt: skip


async def test_one_sample_holds_everything(guest: GuestProcess) -> None:
    async with httpx.AsyncClient(base_url=guest.url, timeout=30) as http:
        sample = (await http.get("/v2/metrics")).json()
        boot_id = (await http.get("/v2/hello")).json()["boot_id"]
    assert set(sample) == FIELDS
    assert sample["boot_id"] == boot_id and abs(sample["at"] - time.time()) < 60
    assert 0 < sample["memory"]["used_bytes"] <= sample["memory"]["limit_bytes"]
    assert sample["disk"]["path"] == str(guest.workdir) and sample["disk"]["free_bytes"] > 0
    assert sample["cpu"]["used_s"] >= 0 and (sample["source"] != "machine" or len(sample["load"]) == 3)


async def test_following_gives_a_line_at_once_and_then_percentages(guest: GuestProcess) -> None:
    async with (
        httpx.AsyncClient(base_url=guest.url, timeout=30) as http,
        http.stream("GET", "/v2/metrics?follow=1&interval_s=0.2") as answer,
        asyncio.timeout(20),
    ):
        lines = answer.aiter_lines()
        samples = [json.loads(await anext(lines)) for _ in range(3)]
    assert samples[0]["cpu"]["percent"] is None
    assert all(sample["cpu"]["percent"] >= 0 and sample["cpu"]["window_s"] > 0 for sample in samples[1:])


@pytest.mark.parametrize("query", ["interval_s=0", "interval_s=-1", "interval_s=x", "interval_s=1e9"])
async def test_an_interval_that_makes_no_sense_is_a_400(guest: GuestProcess, query: str) -> None:
    async with httpx.AsyncClient(base_url=guest.url, timeout=30) as http:
        assert (await http.get(f"/v2/metrics?follow=1&{query}")).status_code == 400


async def test_a_guest_on_a_shared_kernel_counts_its_own_processes_against_its_own_limits(tmp_path: Path) -> None:
    env = {"SBX_LIMITS": json.dumps({"memory_mib": 512, "vcpus": 1.5, "pids_max": 100, "disk_mib": 10})}
    async with (
        running_guest(tmp_path, env={**env, "SBX_ISOLATION": "process"}) as guest,
        httpx.AsyncClient(base_url=guest.url, timeout=30) as http,
    ):
        if (sample := (await http.get("/v2/metrics")).json())["source"] == "cgroup":
            pytest.skip("this machine is itself a container with a cgroup of its own")
        job = {"id": "hog", "argv": ["python3", "-c", "x = bytearray(200 * 2**20); print(flush=True); input()"]}
        await http.post("/v2/jobs", json={**job, "stdin": "pipe"})
        async with asyncio.timeout(30):
            while (await http.get("/v2/jobs/hog")).json()["cursor"] == 0:
                await asyncio.sleep(0.02)
        after = (await http.get("/v2/metrics")).json()
    assert (after["source"], after["memory"]["limit_bytes"]) == ("processes", 512 * 2**20)
    assert (after["cpu"]["cores"], after["pids"]["limit"], after["disk"]["limit_bytes"]) == (1.5, 100, 10 * 2**20)
    assert (after["load"], after["net"], after["disk"]["used_bytes"]) == (None, None, None)
    assert after["pids"]["count"] > sample["pids"]["count"] >= 2
    grown = after["memory"]["used_bytes"] - sample["memory"]["used_bytes"]
    assert 190 * 2**20 < grown < 300 * 2**20
    assert after["pids"]["count"] < len([name for name in os.listdir("/proc") if name.isdigit()])


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def test_a_cgroup_of_version_two_is_read_when_it_is_our_own(tmp_path: Path) -> None:
    group = "sys/fs/cgroup"
    write(
        tmp_path,
        {
            "proc/self/cgroup": "0::/\n",
            f"{group}/memory.current": "104857600\n",
            f"{group}/memory.max": "max\n",
            f"{group}/memory.stat": "anon 1\ninactive_file 4857600\n",
            f"{group}/memory.events": "low 0\noom 3\noom_kill 2\n",
            f"{group}/memory.swap.current": "4096\n",
            f"{group}/cpu.stat": "usage_usec 2500000\nnr_throttled 7\nthrottled_usec 1500000\n",
            f"{group}/cpu.max": "150000 100000\n",
            f"{group}/pids.current": "12\n",
            f"{group}/pids.max": "64\n",
        },
    )
    read = probes.find_cgroup(str(tmp_path))
    assert read is not None
    assert read() == probes.Reading(
        source="cgroup", cpu_s=2.5, quota_cores=1.5, throttled_s=1.5, throttled_count=7, memory_bytes=100_000_000,
        swap_bytes=4096, pids=12, pids_limit=64, oom_count=2,
    )  # fmt: skip


def test_a_cgroup_of_version_one_is_read_when_it_is_our_own(tmp_path: Path) -> None:
    group = "sys/fs/cgroup"
    write(
        tmp_path,
        {
            "proc/self/cgroup": "4:memory:/\n3:cpu,cpuacct:/\n",
            f"{group}/memory/memory.limit_in_bytes": "536870912\n",
            f"{group}/memory/memory.usage_in_bytes": "1000\n",
            f"{group}/memory/memory.stat": "total_inactive_file 400\n",
            f"{group}/memory/memory.oom_control": "oom_kill_disable 0\noom_kill 1\n",
            f"{group}/cpu/cpu.stat": "nr_throttled 2\nthrottled_time 3000000000\n",
            f"{group}/cpu/cpu.cfs_quota_us": "50000\n",
            f"{group}/cpu/cpu.cfs_period_us": "100000\n",
            f"{group}/cpuacct/cpuacct.usage": "9000000000\n",
        },
    )
    read = probes.find_cgroup(str(tmp_path))
    assert read is not None
    assert read() == probes.Reading(
        source="cgroup", cpu_s=9.0, quota_cores=0.5, throttled_s=3.0, throttled_count=2, memory_bytes=600,
        memory_limit_bytes=536_870_912, oom_count=1,
    )  # fmt: skip


def test_the_group_of_somebody_else_is_not_taken_for_ours(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "proc/self/cgroup": "0::/user.slice/session-1.scope\n",
            "sys/fs/cgroup/memory.current": "1\n",
            "sys/fs/cgroup/cpu.stat": "usage_usec 1\n",
        },
    )
    assert probes.find_cgroup(str(tmp_path)) is None


def test_a_machine_of_its_own_reads_the_kernels_totals() -> None:
    read = probes.choose_source({}, "Firecracker", root="/nowhere")
    assert read is probes.read_machine
    reading = read()
    assert reading.source == "machine" and len(reading.cores_s) == os.cpu_count()
    assert isinstance(probes.choose_source({}, "namespaces — shared kernel", root="/nowhere"), probes.ProcessesSource)


def test_busy_time_shows_up_in_the_next_sample(tmp_path: Path) -> None:
    settings = GuestSettings(boot_id="b", workdir=str(tmp_path), isolation="process")
    sampler = Sampler(GuestState(settings, keep=lambda _: None))
    sampler.sample()
    for _ in range(20):
        end_s = time.process_time() + 0.3
        while time.process_time() < end_s:
            pass
        cpu = sampler.sample()["cpu"]
        # Processes that ended meanwhile took theirs with them.
        if isinstance(cpu, dict) and cpu["percent"] > 0:
            return
    raise AssertionError("none of it showed up")


def test_a_clock_that_moves_by_itself_is_noticed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = ClockWatch()
    assert watch.look() == 0
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 3600)
    assert watch.look() == pytest.approx(3600, abs=1)
    assert watch.look() == 0
    assert watch.as_json()["jump_count"] == 1


def test_a_workdir_that_is_gone_leaves_the_disk_unknown(tmp_path: Path) -> None:
    settings = GuestSettings(boot_id="b", workdir=str(tmp_path / "gone"))
    sample = Sampler(GuestState(settings, keep=lambda _: None)).sample()
    disk = sample["disk"]
    assert isinstance(disk, dict) and disk["used_bytes"] is None
