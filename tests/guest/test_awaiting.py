"""Which jobs wait for somebody to type: those that read their input, or show a prompt; not those that work or rest."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from tests.support.guest_process import GuestProcess

DEADLINE_S = 60
POLLS = "import select; print({said}, flush=True); select.select([0], [], [])"
# By name: the words, whether on a terminal, and whether it waits.
JOBS = {
    "reads-pipe": (["sh", "-c", "echo ready; read x"], False, True),
    "child-reads-pipe": (["sh", "-c", "echo ready; cat; true"], False, True),
    "reads-terminal": (["sh", "-c", "printf 'name? '; read x"], True, True),
    "polls-at-a-prompt": (["python3", "-c", POLLS.format(said="'name? ', end=''")], True, True),
    "polls-behind-a-line": (["python3", "-c", POLLS.format(said="'name?'")], True, False),
    "sleeps": (["sh", "-c", "echo ready; exec sleep 600"], False, False),
    "other-pipe": (["sh", "-c", "echo ready; sleep 600 | cat"], False, False),
    "works": (["sh", "-c", "printf 'working '; while :; do :; done"], False, False),
}


@pytest.fixture
async def http(guest: GuestProcess) -> Any:
    async with httpx.AsyncClient(base_url=guest.url, timeout=30) as client:
        boot_id = (await client.get("/v2/hello")).json()["boot_id"]
        client.headers["x-sbx-boot"] = boot_id
        yield client


async def test_a_job_waits_for_input_while_it_reads_it_or_shows_a_prompt(http: httpx.AsyncClient) -> None:
    for name, (words, has_terminal, _) in JOBS.items():
        how = {"tty": {"cols": 80, "rows": 24}} if has_terminal else {"stdin": "pipe"}
        order = {"id": name, "argv": words, **how}
        assert (await http.post("/v2/jobs", json=order)).status_code == 201

    async def waiting() -> dict[str, bool]:
        return {one["id"]: one["awaits_input"] for one in (await http.get("/v2/jobs")).json()["jobs"]}

    expected = {name: waits for name, (_, _, waits) in JOBS.items()}
    async with asyncio.timeout(DEADLINE_S):
        while await waiting() != expected:
            await asyncio.sleep(0.05)
        assert (await http.post("/v2/jobs/reads-pipe/stdin?offset=0&eof=1", content=b"x\n")).status_code == 200
        while (await http.get("/v2/jobs/reads-pipe?wait_s=1")).json()["state"] != "exited":
            pass
    assert (await waiting())["reads-pipe"] is False
    for name in JOBS:
        await http.delete(f"/v2/jobs/{name}")
