"""A guest that has had many jobs: what it keeps of them, and what goes on whatever it forgets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sbxguest.jobs import FINISHED_JOBS_MAX
from sbxtui.guest.client import GuestClient
from tests.support.guest_process import GuestProcess

LIMIT_S = 100
AT_ONCE = 16
# So many that even with some of them still running the finished ones before them had to go.
ENOUGH = FINISHED_JOBS_MAX + AT_ONCE
LOUD = "yes | head -c 9000000"


@pytest.fixture
async def client(guest: GuestProcess) -> AsyncIterator[GuestClient]:
    async with GuestClient(guest.url, None) as client, asyncio.timeout(LIMIT_S):
        yield client


async def run_many(client: GuestClient, command: str, count: int) -> None:
    gate = asyncio.Semaphore(AT_ONCE)

    async def one() -> None:
        async with gate:
            assert (await client.exec(["sh", "-c", command])).exit_code == 0

    await asyncio.gather(*(one() for _ in range(count)))


async def ids(client: GuestClient) -> list[str]:
    return [job.id for job in await client.jobs.list()]


@pytest.mark.long
@pytest.mark.parametrize(("command", "count"), [("true", ENOUGH), (LOUD, 8 + AT_ONCE)])
async def test_what_a_job_left_running_outlives_the_jobs_that_follow(
    guest: GuestProcess, client: GuestClient, command: str, count: int
) -> None:
    left = "(while sleep 0.05; do echo tick; echo > beat; done) & echo $! > pid"
    await client.exec(["sh", "-c", left])
    pid = int((guest.workdir / "pid").read_text())
    (job_id,) = await ids(client)
    await run_many(client, command, count)
    (guest.workdir / "beat").unlink()
    while not (guest.workdir / "beat").exists():
        await asyncio.sleep(0.05)

    await client.jobs.signal(job_id, "KILL", to="tree")
    while Path(f"/proc/{pid}").exists():
        await asyncio.sleep(0.05)
    # With nothing left of it, it goes like any other.
    await run_many(client, command, count)
    assert job_id not in await ids(client)


async def test_a_command_that_never_began_is_forgotten_like_one_that_ended(
    guest: GuestProcess, client: GuestClient
) -> None:
    assert (await client.exec(["/no/such/program"])).exit_code == 127
    (job_id,) = await ids(client)
    await guest.kill_server()
    await run_many(client, "true", ENOUGH)
    assert job_id not in await ids(client)
