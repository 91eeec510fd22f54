"""The main process: what it outlives, and what does not outlive it."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import shutil
import signal
import socket
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from sbxtui.guest.client import GuestClient
from tests.support.guest_process import GuestProcess, children_of, init_command, running_guest

LIMIT_S = 30


@pytest.fixture
async def client(guest: GuestProcess) -> AsyncIterator[GuestClient]:
    async with GuestClient(guest.url, None) as client, asyncio.timeout(LIMIT_S):
        yield client


def _is_alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    return stat[stat.rindex(b")") + 2 :][:1] not in (b"Z", b"X")


async def _written(path: Path) -> int:
    while not (path.exists() and path.read_text().strip()):
        await asyncio.sleep(0.01)
    return int(path.read_text())


async def _until_dead(*pids: int) -> None:
    async with asyncio.timeout(10):
        while any(map(_is_alive, pids)):
            await asyncio.sleep(0.01)


ESCAPING = "setsid sh -c 'echo $$ > escaped; exec sleep 1000' & echo $$ > leader; exec sleep 1000"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
async def test_however_init_ends_nothing_it_started_is_left(tmp_path: Path, number: int) -> None:
    async with running_guest(tmp_path) as guest, GuestClient(guest.url, None) as client:
        run = asyncio.create_task(client.exec(["sh", "-c", ESCAPING]))
        pids = [await _written(guest.workdir / name) for name in ("leader", "escaped")]
        pids += children_of(guest.init_pid)
        os.kill(guest.init_pid, number)
        await _until_dead(*pids)
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)


async def test_a_shim_that_is_killed_ends_its_job_and_no_other(guest: GuestProcess, client: GuestClient) -> None:
    other = asyncio.create_task(client.exec(["sh", "-c", "echo $$ > other; exec sleep 1000"], job_id="other"))
    other_pid = await _written(guest.workdir / "other")
    run = asyncio.create_task(client.exec(["sh", "-c", ESCAPING]))
    pids = [await _written(guest.workdir / name) for name in ("leader", "escaped")]
    shim = int(Path(f"/proc/{pids[0]}/stat").read_text().rsplit(")", 1)[1].split()[1])
    os.kill(shim, signal.SIGKILL)
    result = await run
    assert (result.exit_code, result.signal) == (137, signal.SIGKILL)
    await _until_dead(*pids)
    assert _is_alive(other_pid)
    await client.jobs.delete("other")
    assert (await client.exec(["echo", "on"])).stdout == b"on\n"
    await asyncio.gather(other, return_exceptions=True)


async def test_a_full_table_of_descriptors_fails_the_one_job_and_harms_no_other(tmp_path: Path) -> None:
    # Each job needs more numbers in init than in the server, so init's table is the one that fills.
    prefix = ("sh", "-c", 'ulimit -n 100; exec "$0" "$@"')
    async with running_guest(tmp_path, prefix=prefix) as guest, httpx.AsyncClient(base_url=guest.url) as http:
        started: list[str] = []
        refused: httpx.Response | None = None
        while refused is None:
            job_id = f"j{len(started)}"
            body = {"id": job_id, "argv": ["sleep", "1000"], "stdin": "pipe"}
            answer = await http.post("/v2/jobs", json=body)
            if answer.status_code == 201:
                started.append(job_id)
            else:
                refused = answer
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "cannot_start")
        assert os.strerror(errno.EMFILE) in refused.json()["error"]["message"]
        states = {job["id"]: job["state"] for job in (await http.get("/v2/jobs")).json()["jobs"]}
        assert states == dict.fromkeys(started, "running")
        await http.delete(f"/v2/jobs/{started.pop()}")
        await http.delete(f"/v2/jobs/{started.pop()}")
        ran = (await http.post("/v2/jobs?wait_s=20", json={"id": "again", "argv": ["true"]})).json()
        assert ran["exit"]["code"] == 0


async def test_jobs_do_not_inherit_the_limit_of_open_files_that_the_guest_raised_for_itself(tmp_path: Path) -> None:
    prefix = ("sh", "-c", 'ulimit -Sn 300; exec "$0" "$@"')
    async with running_guest(tmp_path, prefix=prefix) as guest, GuestClient(guest.url, None) as client:
        assert (await client.exec(["sh", "-c", "ulimit -Sn"])).stdout == b"300\n"
        raised, hard = resource.prlimit(guest.init_pid, resource.RLIMIT_NOFILE)
        assert raised == hard


async def test_a_server_that_keeps_dying_is_started_again_each_time_and_hangs_no_command(
    guest: GuestProcess, client: GuestClient
) -> None:
    run = asyncio.create_task(client.exec(["sh", "-c", "echo $$ > pid; while [ -e pid ]; do sleep 0.01; done; exit 3"]))
    await _written(guest.workdir / "pid")
    for _ in range(4):
        await guest.kill_server()
    (guest.workdir / "pid").unlink()
    assert (await run).exit_code == 3


async def test_a_server_gets_back_more_jobs_than_its_link_holds_at_once(guest: GuestProcess) -> None:
    async with GuestClient(guest.url, None) as client:
        for _ in range(25):
            await asyncio.gather(*(client.exec(["true"]) for _ in range(6)))
        before = [job.id for job in await client.jobs.list()]
        assert len(before) == 150
        async with asyncio.timeout(30):
            for _ in range(2):
                await guest.kill_server()
                assert [job.id for job in await client.jobs.list()] == before
            assert (await client.exec(["echo", "on"])).stdout == b"on\n"


async def test_no_connection_is_refused_while_the_server_is_down(guest: GuestProcess, client: GuestClient) -> None:
    hello = await client.hello()
    os.kill(guest.server_pid, signal.SIGKILL)
    async with GuestClient(guest.url, None) as other:
        assert (await other.hello(timeout_s=10)).boot_id == hello.boot_id


async def test_a_server_that_hangs_blocks_no_job(guest: GuestProcess, client: GuestClient) -> None:
    run = asyncio.create_task(client.exec(["sh", "-c", "echo $$ > pid; while [ -e pid ]; do sleep 0.01; done; exit 4"]))
    pid = await _written(guest.workdir / "pid")
    server = guest.server_pid
    os.kill(server, signal.SIGSTOP)
    (guest.workdir / "pid").unlink()
    await _until_dead(pid)
    os.kill(server, signal.SIGCONT)
    assert (await run).exit_code == 4


async def test_a_taken_port_is_said_in_words(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        env = {"AGENTD_PORT": str(taken.getsockname()[1]), "AGENTD_BIND": "127.0.0.1"}
        done = await asyncio.to_thread(
            subprocess.run,
            init_command(),
            env=env,
            capture_output=True,
            timeout=10,
            check=False,
        )
    assert done.returncode == 1
    assert b"cannot listen: [Errno 98] Address already in use" in done.stderr


async def test_the_guest_answers_on_both_families(tmp_path: Path) -> None:
    async with running_guest(tmp_path, env={"AGENTD_BIND": ""}) as guest:
        for host in ("127.0.0.1", "[::1]"):
            if host == "[::1]" and not socket.has_ipv6:
                continue
            async with GuestClient(f"http://{host}:{guest.port}", None) as client:
                assert (await client.hello()).generation == 2


NAMESPACES = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")


def _can_unshare() -> bool:
    if not shutil.which("unshare"):
        return False
    return subprocess.run([*NAMESPACES, "true"], capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not _can_unshare(), reason="needs the right to make a pid namespace")
async def test_as_pid_1_it_reaps_everything_and_its_end_ends_all(tmp_path: Path) -> None:
    async with running_guest(tmp_path, prefix=NAMESPACES) as guest, GuestClient(guest.url, None) as client:
        result = await client.exec(
            ["sh", "-c", "(setsid true &); (true &); sleep 0.2; ps -eo stat,pid,comm | grep -c ^Z"]
        )
        assert result.stdout.strip() == b"0"
        killer = await client.exec(["sh", "-c", "kill -9 -1; sleep 1000"])
        assert (killer.exit_code, killer.signal) == (137, signal.SIGKILL)
        assert (await client.exec(["echo", "on"])).stdout == b"on\n"
        # unshare does not pass the signal on; its child is what the platform would stop.
        os.kill(children_of(guest.init_pid)[0], signal.SIGTERM)
        await _until_dead(guest.init_pid)
