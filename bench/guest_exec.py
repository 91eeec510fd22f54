"""What running a command costs over starting the bare program, and how fast its output comes."""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx

from bench.support import Row
from sbxtui.guest.client import GuestClient
from tests.support.guest_process import GuestProcess, children_of, running_guest

_RUNS = 200
_STREAM_BYTES = 500_000_000
_STREAM = ["sh", "-c", f"yes 2>/dev/null | head -c {_STREAM_BYTES}"]


def run() -> list[Row]:
    """Rows of (name, figure, ratio or difference to the bare program)."""
    return asyncio.run(_run())


async def _run() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        async with running_guest(Path(folder)) as guest, GuestClient(guest.url, None) as client:
            return [*_memory(guest), *await _spawns(guest, client), *await _streams(client)]


def _memory(guest: GuestProcess) -> list[Row]:
    rows: list[Row] = []
    total_kib = 0
    for pid in (guest.init_pid, *children_of(guest.init_pid)):
        rollup = dict(
            line.split(":", 1) for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:] if ":" in line
        )
        rss_kib, pss_kib = (int(rollup[name].split()[0]) for name in ("Rss", "Pss"))
        total_kib += pss_kib
        name = "init" if pid == guest.init_pid else "server" if pid == guest.server_pid else "idle shim"
        rows.append((f"memory idle: {name}", f"{rss_kib / 1024:.1f} MiB RSS", f"{pss_kib / 1024:.1f} MiB PSS"))
    return [*rows, ("memory idle: all", f"{total_kib / 1024:.1f} MiB PSS", "")]


async def _spawns(guest: GuestProcess, client: GuestClient) -> list[Row]:
    async def bare() -> None:
        pid = os.posix_spawn("/bin/true", ["true"], {})  # noqa: ASYNC221 - the blocking start is what is measured
        os.waitpid(pid, 0)  # noqa: ASYNC222 - as above

    async def by_client() -> None:
        await client.exec(["true"])

    count = 0
    async with httpx.AsyncClient(base_url=guest.url) as http:

        async def by_guest() -> None:
            nonlocal count
            count += 1
            await http.post("/v2/jobs?wait_s=5", json={"id": f"bench{count}", "argv": ["/bin/true"]})

        async def healthz() -> None:
            await http.get("/healthz")

        base = await _quantiles(bare)
        request = await _quantiles(healthz)
        guest_level, client_level = await _quantiles(by_guest), await _quantiles(by_client)
    net = (guest_level[0] - request[0], guest_level[1] - request[1])
    return [
        ("true: posix_spawn + waitpid", _ms(base), "1x"),
        ("one request to the guest (/healthz)", _ms(request), ""),
        ("true: in the guest, less that request", _ms(net), f"+{net[0] - base[0]:.2f} ms p10"),
        ("true: GuestClient.exec", _ms(client_level), f"+{client_level[0] - base[0]:.2f} ms p10"),
    ]


async def _quantiles(work: Callable[[], Awaitable[None]]) -> tuple[float, float]:
    """p10 and p50 in ms."""
    spans: list[float] = []
    for _ in range(_RUNS):
        began_s = time.perf_counter()
        await work()
        spans.append((time.perf_counter() - began_s) * 1000)
    return statistics.quantiles(spans, n=10)[0], statistics.median(spans)


def _ms(span: tuple[float, float]) -> str:
    return f"{span[0]:.2f} p10, {span[1]:.2f} p50 ms"


async def _streams(client: GuestClient) -> list[Row]:
    bare_mb_s = await asyncio.to_thread(_local_pipe)
    received = 0

    async def on_output(_channel: str, data: bytes) -> None:
        nonlocal received
        received += len(data)

    best_mb_s, cpu_s = 0.0, 0.0
    for _ in range(3):
        began_s, began_cpu_s = time.perf_counter(), time.process_time()
        await client.exec(_STREAM, on_output=on_output)
        mb_s = _STREAM_BYTES / (time.perf_counter() - began_s) / 1e6
        if mb_s > best_mb_s:
            best_mb_s, cpu_s = mb_s, time.process_time() - began_cpu_s
    return [
        ("500 MB of output: local pipe", f"{bare_mb_s:.0f} MB/s", "1x"),
        ("500 MB of output: GuestClient.exec", f"{best_mb_s:.0f} MB/s", f"{best_mb_s / bare_mb_s:.2f}x"),
        ("500 MB of output: client CPU", f"{cpu_s:.2f} s", ""),
    ]


def _local_pipe() -> float:
    read_end, write_end = os.pipe()
    began_s = time.perf_counter()
    actions = [(os.POSIX_SPAWN_DUP2, write_end, 1), (os.POSIX_SPAWN_CLOSE, read_end)]
    pid = os.posix_spawn("/bin/sh", _STREAM, dict(os.environ), file_actions=actions)
    os.close(write_end)
    received = 0
    while data := os.read(read_end, 256 * 1024):
        received += len(data)
    os.close(read_end)
    os.waitpid(pid, 0)
    assert received == _STREAM_BYTES
    return received / (time.perf_counter() - began_s) / 1e6


if __name__ == "__main__":
    for row in run():
        sys.stdout.write("{:<42} {:<28} {}\n".format(*row))
