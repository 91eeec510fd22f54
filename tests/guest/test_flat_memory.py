"""What the guest holds in memory does not grow with what passes through it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.attach_client import attached
from tests.support.guest_process import GuestProcess

LIMIT_S = 300
_GROWTH_KIB = 8 * 1024


@pytest.fixture
async def http(guest: GuestProcess) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=guest.url, timeout=60) as http:
        yield http


def _peak_kib(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1])
    raise LookupError(pid)


async def _pass_through(guest: GuestProcess, http: httpx.AsyncClient, size_bytes: int, **more: Any) -> int:
    """Run a job with that much output and read it all; returns how much came, gaps counted."""
    name = f"j{size_bytes}"
    script = f"[ -t 1 ] && stty raw; head -c {size_bytes} /dev/zero"
    body = {"id": name, "argv": ["sh", "-c", script], "log": "hold", **more}
    assert (await http.post("/v2/jobs", json=body)).status_code == 201
    total = 0
    async with attached(guest.url, name) as me:
        while not me.frames or me.exit is None:
            await me.until_more()
            total += sum(frame.end_cursor - frame.cursor for frame in me.frames if frame.type in (2, 3))
            me.frames = me.frames[-1:] if me.exit else [frame for frame in me.frames if frame.type == 1]
    await http.delete(f"/v2/jobs/{name}")
    return total


@pytest.mark.soak
@pytest.mark.timeout(LIMIT_S)
@pytest.mark.parametrize(("size_bytes", "tty"), [(1_000_000_000, None), (100_000_000, {"cols": 80, "rows": 24})])
async def test_much_output_leaves_server_and_init_as_small_as_they_were(
    guest: GuestProcess, http: httpx.AsyncClient, size_bytes: int, tty: dict[str, int] | None
) -> None:
    async with asyncio.timeout(LIMIT_S - 20):
        await _pass_through(guest, http, 1_000_000, tty=tty, log="ring")
        before = _peak_kib(guest.server_pid), _peak_kib(guest.init_pid)
        assert await _pass_through(guest, http, size_bytes, tty=tty, log="ring") == size_bytes
        after = _peak_kib(guest.server_pid), _peak_kib(guest.init_pid)
    assert after[0] - before[0] < _GROWTH_KIB and after[1] - before[1] < _GROWTH_KIB
