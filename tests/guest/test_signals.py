"""Signals and ends of jobs, against a real guest: who gets them, and that nothing escapes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator

import httpx
import pytest

from sbxguest import wire
from tests.support.guest_process import GuestProcess
from tests.support.job_calls import error_of, job_frames, start_job

LIMIT_S = 30


@pytest.fixture
async def http(guest: GuestProcess) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=guest.url, timeout=20) as http, asyncio.timeout(LIMIT_S):
        yield http


@pytest.mark.parametrize(("to", "survivors"), [("leader", 2), ("group", 1), ("tree", 0)])
async def test_a_signal_reaches_leader_group_or_tree(
    guest: GuestProcess, http: httpx.AsyncClient, to: str, survivors: int
) -> None:
    script = """
    sh -c 'echo $$ > one; exec sleep 1000' & setsid sh -c 'echo $$ > two; exec sleep 1000' &
    while ! [ -s one -a -s two ]; do sleep 0.01; done; echo up; exec sleep 1000
    """
    await start_job(http, "s", script)
    while not await job_frames(http, "s"):
        pass
    reply = await http.post("/v2/jobs/s/signal", json={"sig": "KILL", "to": to})
    assert reply.status_code == 200
    last = (await job_frames(http, "s", follow=1))[-1]
    assert wire.payload_json(last)["signal"] == 9
    pids = [int((guest.workdir / name).read_text()) for name in ("one", "two")]
    while sum(os.path.exists(f"/proc/{pid}") for pid in pids) != survivors:
        await asyncio.sleep(0.01)
    assert (await http.delete("/v2/jobs/s")).status_code == 200
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)


async def test_an_end_asks_the_group_and_then_kills_what_did_not_listen_or_escaped(
    guest: GuestProcess, http: httpx.AsyncClient
) -> None:
    script = """
    trap '' TERM; setsid sh -c 'echo $$ > one; exec sleep 1000' & (setsid sleep 1000 & echo $! > two)
    while ! [ -s one -a -s two ]; do sleep 0.01; done; echo up; sleep 1000
    """
    await start_job(http, "s", script, kill_grace_s=0.2)
    while not await job_frames(http, "s"):
        pass
    assert (await http.post("/v2/jobs/s/end")).json()["state"] == "running"
    exit_document = wire.payload_json((await job_frames(http, "s", follow=1))[-1])
    assert (exit_document["signal"], exit_document["lingering"]) == (9, False)
    assert not any(os.path.exists(f"/proc/{(guest.workdir / name).read_text().strip()}") for name in ("one", "two"))
    await start_job(http, "t", "trap 'echo bye; exit 4' TERM; echo up; while :; do sleep 0.05; done")
    while not await job_frames(http, "t"):
        pass
    await http.post("/v2/jobs/t/end")
    *said, last = await job_frames(http, "t", follow=1)
    assert b"".join(frame.payload for frame in said).endswith(b"bye\n")
    assert wire.payload_json(last)["code"] == 4


async def test_what_an_ended_job_left_behind_ends_with_it(guest: GuestProcess, http: httpx.AsyncClient) -> None:
    await start_job(http, "l", "setsid sleep 1000 & echo $! > left")
    assert wire.payload_json((await job_frames(http, "l", follow=1))[-1])["lingering"]
    await http.post("/v2/jobs/l/end")
    while os.path.exists(f"/proc/{(guest.workdir / 'left').read_text().strip()}"):
        await asyncio.sleep(0.01)


async def test_signals_have_names_and_numbers_and_nothing_else(http: httpx.AsyncClient) -> None:
    await start_job(http, "s", "exec sleep 1000")
    for sig in ("NOPE", 0, 65, True, None, "SIG_IGN"):
        reply = await http.post("/v2/jobs/s/signal", json={"sig": sig})
        assert error_of(reply) == (400, "bad_signal"), sig
    assert error_of(await http.post("/v2/jobs/s/signal", json={"to": "all"})) == (400, "bad_signal")
    assert (await http.post("/v2/jobs/s/signal", json={"sig": 15})).status_code == 200
    assert wire.payload_json((await job_frames(http, "s", follow=1))[-1])["signal"] == 15
