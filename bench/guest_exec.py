"""What running a command costs over starting the bare program, and how fast its output comes."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path

from bench.support import Row, bare_true, quantiles, quantiles_ms
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
            idle = _memory(guest)
            return [*idle, *await _spawns(client), *await _streams(guest, client)]


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


async def _spawns(client: GuestClient) -> list[Row]:
    async def by_client() -> None:
        await client.exec(["true"])

    async def hello() -> None:
        await client.hello()

    base = await quantiles_ms(bare_true, runs=_RUNS)
    request = await quantiles_ms(hello, runs=_RUNS)
    whole = await quantiles_ms(by_client, runs=_RUNS)
    net = (whole[0] - request[0], whole[1] - request[1])
    return [
        ("true: posix_spawn + waitpid", quantiles(base), "1x"),
        ("one request to the guest (hello)", quantiles(request), ""),
        ("true: in the guest, less that request", quantiles(net), f"+{net[0] - base[0]:.2f} ms p10, at most 2 ms"),
        ("true: GuestClient.exec", quantiles(whole), f"+{whole[0] - base[0]:.2f} ms p10, at most 8 ms"),
    ]


async def _streams(guest: GuestProcess, client: GuestClient) -> list[Row]:
    before_kib = _peak_kib(guest.server_pid)
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
        (
            "500 MB of output: GuestClient.exec",
            f"{best_mb_s:.0f} MB/s",
            f"{best_mb_s / bare_mb_s:.2f}x, at least 300 MB/s",
        ),
        ("500 MB of output: client CPU", f"{cpu_s:.2f} s", ""),
        (
            "memory grown by it: server",
            f"{(_peak_kib(guest.server_pid) - before_kib) / 1024:.1f} MiB",
            "at most 32 MiB",
        ),
    ]


def _peak_kib(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM:")).split()[1])


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
