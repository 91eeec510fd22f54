"""What one job may use: kept by control groups where the sandbox may make them, and said where it may not."""

from __future__ import annotations

import asyncio
import base64
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from sbxguest.joblimits import JobGroup, Limits
from tests.support.guest_process import GuestProcess, running_guest

LIMIT_S = 60


@pytest.fixture
async def http(guest: GuestProcess) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=guest.url, timeout=30) as http, asyncio.timeout(LIMIT_S):
        yield http


async def _run(http: httpx.AsyncClient, script: str, job_id: str = "j", **limits: float) -> dict[str, Any]:
    body = {"id": job_id, "argv": ["sh", "-c", script], "limits": limits}
    reply = await http.post("/v2/jobs", params={"wait_s": 25}, json=body)
    assert reply.status_code == 201, reply.text
    document: dict[str, Any] = reply.json()
    return document


def _groups() -> list[Path]:
    return [folder for base in (Path("/sys/fs/cgroup"),) for folder in base.glob("**/sbx-job-*")]


def _is_kept(limit: str) -> bool:
    """Whether this machine lets us make groups for that limit."""
    group, by = JobGroup.create(f"sbx-job-probe-{os.getpid()}", Limits(**{limit: 64}), may_group=True)
    group.remove()
    return by[limit] == "cgroup"


async def test_the_answer_says_who_keeps_each_limit(http: httpx.AsyncClient) -> None:
    job = await _run(http, "true", pids=50, memory_mib=500, cpus=0.5)
    assert {name: limit["limit"] for name, limit in job["limits"].items()} == {
        "pids": 50,
        "memory_mib": 500,
        "cpus": 0.5,
    }
    for name in ("pids", "memory_mib", "cpus"):
        otherwise = "rlimit" if name == "memory_mib" else "nothing"
        assert job["limits"][name]["by"] == ("cgroup" if _is_kept(name) else otherwise)
    assert (await _run(http, "true", "none"))["limits"] == {}


async def test_a_job_that_forks_too_much_is_stopped_at_its_limit_and_harms_no_other(
    guest: GuestProcess, http: httpx.AsyncClient
) -> None:
    if not _is_kept("pids"):
        pytest.skip("no control groups for pids here")
    script = "i=0; while [ $i -lt 60 ]; do sleep 1000 & i=$((i+1)); done; echo all"
    job = await _run(http, script, pids=20)
    assert job["exit"]["code"] == 2 and job["limits"]["pids"]["by"] == "cgroup"
    assert (await _run(http, "i=0; while [ $i -lt 60 ]; do sleep 0 & i=$((i+1)); done; wait", "o"))["exit"]["code"] == 0
    assert (await http.delete("/v2/jobs/j")).status_code == 200
    assert not [group for group in _groups() if f"-{guest.init_pid}-" in group.name]


async def test_a_job_that_takes_too_much_memory_is_ended_and_the_reason_said(http: httpx.AsyncClient) -> None:
    if not _is_kept("memory_mib"):
        pytest.skip("no control groups for memory here")
    job = await _run(http, "exec dd if=/dev/zero of=/dev/null bs=200M count=1", memory_mib=50)
    assert (job["exit"]["signal"], job["exit"]["oom"]) == (9, True)


LIMITED = [{"memory_mib": 100}, {"pids": 5}]


@pytest.mark.parametrize("limits", LIMITED, ids=str)
async def test_a_limited_job_begins_and_fails_as_any_other(
    http: httpx.AsyncClient, guest: GuestProcess, limits: dict[str, float]
) -> None:
    script = "kill -0 -$$ && echo leads; trap; ls /proc/self/fd | wc -l; cat; cut -d' ' -f7 /proc/self/stat"
    ours = {"id": "ours", "argv": ["sh", "-c", script], "env": {"A": "1"}}
    jobs = [
        (await http.post("/v2/jobs", params={"wait_s": 25}, json={**ours, "id": name, "limits": own})).json()
        for name, own in (("free", {}), ("limited", limits))
    ]
    assert jobs[0]["output"] == jobs[1]["output"] and jobs[1]["exit"]["code"] == 0
    shown = await http.post(
        "/v2/jobs",
        params={"wait_s": 25},
        json={"id": "tty", "argv": ["sh", "-c", "tty"], "tty": {"cols": 80, "rows": 24}, "limits": limits},
    )
    assert base64.b64decode(shown.json()["output"]["pty"]).startswith(b"/dev/pts/")
    missing = await http.post("/v2/jobs", params={"wait_s": 25}, json={"id": "m", "argv": ["nope"], "limits": limits})
    assert missing.json()["exit"]["code"] == 127
    nowhere = {"id": "n", "argv": ["true"], "cwd": "/nowhere", "limits": limits}
    assert (await http.post("/v2/jobs", json=nowhere)).json()["error"]["code"] == "cwd_not_found"


async def test_limits_outlive_the_server(guest: GuestProcess, http: httpx.AsyncClient) -> None:
    body = {"id": "l", "argv": ["sleep", "1000"], "limits": {"pids": 20, "memory_mib": 100}}
    job = (await http.post("/v2/jobs", json=body)).json()
    await guest.kill_server()
    assert (await http.get("/v2/jobs/l")).json()["limits"] == job["limits"]
    await http.delete("/v2/jobs/l")
    assert not [group for group in _groups() if f"-{guest.init_pid}-" in group.name]


async def test_in_a_shared_file_system_memory_is_kept_for_each_process_and_the_rest_is_said_to_be_open(
    tmp_path: Path,
) -> None:
    running = running_guest(tmp_path, env={"SBX_ROOT": str(tmp_path / "work")})
    async with running as guest, httpx.AsyncClient(base_url=guest.url, timeout=30) as http:
        job = await _run(http, "ulimit -d", pids=20, memory_mib=50, cpus=1)
        assert {name: limit["by"] for name, limit in job["limits"].items()} == {
            "pids": "nothing",
            "memory_mib": "rlimit",
            "cpus": "nothing",
        }
        failed = await _run(http, "exec dd if=/dev/zero of=/dev/null bs=200M count=1", "m", memory_mib=50)
        assert failed["exit"]["code"] not in (0, None)


@pytest.mark.parametrize(
    "limits", [[], {"disk": 1}, {"pids": 0}, {"pids": "1"}, {"memory_mib": -1}, {"cpus": 0.001}, {"pids": True}]
)
async def test_limits_that_make_no_sense_are_refused(http: httpx.AsyncClient, limits: object) -> None:
    reply = await http.post("/v2/jobs", json={"id": "j", "argv": ["true"], "limits": limits})
    assert reply.status_code == 400 and reply.json()["error"]["code"].startswith("bad_")


async def test_a_job_may_be_of_one_process(http: httpx.AsyncClient) -> None:
    if not _is_kept("pids"):
        pytest.skip("no control groups for pids here")
    job = await _run(http, "read line < /proc/self/stat; echo $line; (true); echo more", pids=1)
    assert job["exit"]["code"] == 2
    assert base64.b64decode(job["output"]["stdout"]).count(b"\n") == 1


def test_another_users_memory_is_limited_without_the_privilege_to_raise_limits() -> None:
    setpriv = shutil.which("setpriv")
    if os.geteuid() != 0 or setpriv is None:
        pytest.skip("needs root and setpriv")
    script = """
import os
from sbxguest.spawn import Plumbing, Spec, start
spec = Spec([b"sh", b"-c", b"id -u; ulimit -d"], {b"PATH": b"/usr/bin:/bin"}, b"/",
            uid=65534, gid=65534, groups=[], data_bytes=50 << 20)
os.waitpid(start(spec, Plumbing((0, 1, 2))), 0)
"""
    command = [setpriv, "--bounding-set=-sys_resource", sys.executable, "-c", script]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.stdout, ended.stderr) == (f"65534\n{50 << 10}\n", "")
