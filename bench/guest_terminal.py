"""A terminal in the guest over one WebSocket: a key's way there and back, and a flood of output."""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import httpx

from bench.support import Row
from sbxguest.wire import FrameType
from tests.support.attach_client import attached
from tests.support.guest_process import running_guest

_KEYS = 300
_FLOOD_BYTES = 50_000_000
_FLOOD = ["sh", "-c", f"stty raw; head -c {_FLOOD_BYTES} /dev/zero"]
_TTY = {"cols": 80, "rows": 24}


def run() -> list[Row]:
    """Rows of (name, figure, the same at a terminal of our own)."""
    return asyncio.run(_run())


async def _run() -> list[Row]:
    bare_ms, bare_mb_s = _bare_keys(), _bare_flood()
    with tempfile.TemporaryDirectory() as folder:
        async with running_guest(Path(folder)) as guest, httpx.AsyncClient(base_url=guest.url, timeout=60) as http:
            await http.post("/v2/jobs", json={"id": "k", "argv": ["sh", "-c", "stty raw -echo; cat"], "tty": _TTY})
            keys_ms = await _keys(guest.url)
            began_s = time.perf_counter()
            await http.post("/v2/jobs", json={"id": "f", "argv": _FLOOD, "tty": _TTY})
            async with attached(guest.url, "f") as me:
                await me.until_closed()
            mb_s = _FLOOD_BYTES / (time.perf_counter() - began_s) / 1e6
    return [
        ("a key through `cat` and back", f"{keys_ms:.2f} p50 ms", f"{bare_ms:.2f} ms"),
        (f"{_FLOOD_BYTES // 1_000_000} MB of output", f"{mb_s:.0f} MB/s", f"{bare_mb_s:.0f} MB/s"),
    ]


async def _keys(url: str) -> float:
    spans_ms: list[float] = []
    async with attached(url, "k") as me:
        await me.until_more()
        for count in range(_KEYS):
            began_s = time.perf_counter()
            await me.send(FrameType.STDIN, count, b"x")
            while len(me.output) <= count:
                await me.until_more()
            spans_ms.append((time.perf_counter() - began_s) * 1000)
    return statistics.median(spans_ms)


def _bare(argv: list[str]) -> tuple[int, int]:
    """A program on a terminal of our own: its pid, and our side."""
    ours, theirs = os.openpty()
    opened = (os.POSIX_SPAWN_OPEN, 0, os.ttyname(theirs), os.O_RDWR, 0)
    actions = [opened, (os.POSIX_SPAWN_DUP2, 0, 1), (os.POSIX_SPAWN_DUP2, 0, 2)]
    pid = os.posix_spawnp(argv[0], argv, dict(os.environ), file_actions=actions, setsid=True)
    os.close(theirs)
    return pid, ours


def _bare_keys() -> float:
    pid, ours = _bare(["sh", "-c", "stty raw -echo; echo; exec cat"])
    os.read(ours, 10)
    spans_ms: list[float] = []
    for _ in range(_KEYS):
        began_s = time.perf_counter()
        os.write(ours, b"x")
        os.read(ours, 10)
        spans_ms.append((time.perf_counter() - began_s) * 1000)
    os.close(ours)
    os.waitpid(pid, 0)
    return statistics.median(spans_ms)


def _bare_flood() -> float:
    began_s = time.perf_counter()
    pid, ours = _bare(_FLOOD)
    left_bytes = _FLOOD_BYTES
    while left_bytes:
        left_bytes -= len(os.read(ours, 65_536))
    span_s = time.perf_counter() - began_s
    os.close(ours)
    os.waitpid(pid, 0)
    return _FLOOD_BYTES / span_s / 1e6


if __name__ == "__main__":
    for row in run():
        sys.stdout.write("{:<42} {:<28} {}\n".format(*row))
