"""Commands in a sandbox of the local cloud: what starting one costs, and how fast, soon and lean its output comes."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from bench.support import (
    SBX,
    BenchHome,
    Row,
    bare_true,
    bench_home,
    interleaved,
    milliseconds,
    quantiles,
    quantiles_ms,
    ratio_row,
)
from sbxtui.settings import load
from sbxtui.wiring import Services

_RUNS = 100
_AT_ONCE = 16
_READ_BYTES = 1 << 20
_MOST_BYTES = 10**9
_LINE_BYTES = 100_000


def run() -> list[Row]:
    """Rows of starting commands, of their output, and of memory; takes about a minute."""
    with bench_home() as home:
        home.sbx("create", "bench")
        home.sbx("exec", "bench", "--", "true")
        return [*asyncio.run(_starts(home)), *_outputs(home), _long_line(home), _first_byte(home), _memory(home)]


async def _starts(home: BenchHome) -> list[Row]:
    services = Services(load(dict(home.env), cwd=home.folder), actor="bench")
    row = await services.sandboxes.find("bench")
    try:
        async with services.guests.connect(row) as guest:
            ours_ms = await quantiles_ms(lambda: guest.exec(["true"]), runs=_RUNS)
            bare_ms = await quantiles_ms(bare_true, runs=_RUNS)
            at_once = await _per_second(lambda: guest.exec(["true"]))
            bare_at_once = await _per_second(bare_true)
    finally:
        services.close()
    more = f"{quantiles(bare_ms)} a bare start here, +{ours_ms[0] - bare_ms[0]:.2f} ms p10, at most 8 ms"
    return [
        ("`true` over a kept connection", quantiles(ours_ms), more),
        (f"`true`, {_AT_ONCE} at once", f"{at_once:.0f} /s", f"{bare_at_once:.0f} /s bare starts; at least 150 /s"),
    ]


async def _per_second(work: Callable[[], Awaitable[object]]) -> float:
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one() -> None:
        async with gate:
            await work()

    began = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(2 * _RUNS)))
    return 2 * _RUNS / (time.perf_counter() - began)


def _outputs(home: BenchHome) -> list[Row]:
    return [_output(home, size_bytes) for size_bytes in (50 * 10**6, 500 * 10**6)]


def _output(home: BenchHome, size_bytes: int) -> Row:
    flood = ["sh", "-c", f"yes 2>/dev/null | head -c {size_bytes}"]
    ours_s, bare_s = interleaved(
        lambda: _drain([*SBX, "exec", "bench", "--", *flood], home, size_bytes),
        lambda: _drain(flood, home, size_bytes),
        rounds=3,
    )
    return ratio_row(f"{size_bytes // 10**6} MB through `sbx exec`", ours_s, bare_s, "a local pipe")


def _drain(command: Sequence[str], home: BenchHome, size_bytes: int) -> float:
    began = time.perf_counter()
    with subprocess.Popen(
        command, env=home.env, cwd=home.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        received = 0
        while piece := os.read(child.stdout.fileno(), _READ_BYTES):
            received += len(piece)
    if received != size_bytes or child.returncode != 0:
        raise RuntimeError(f"{received} of {size_bytes} bytes came, and exit code {child.returncode}")
    return time.perf_counter() - began


def _long_line(home: BenchHome) -> Row:
    """A line without an end in sight, against a command without output: what starting costs is in both."""
    line = ["sh", "-c", f"head -c {_LINE_BYTES - 1} /dev/zero | tr '\\0' x; echo"]
    ours_s, bare_s = interleaved(
        lambda: _drain([*SBX, "exec", "bench", "--", *line], home, _LINE_BYTES),
        lambda: _drain([*SBX, "exec", "bench", "--", "true"], home, 0),
        rounds=7,
    )
    more = f"{milliseconds(bare_s)} `true`, at most 20 ms more"
    return (f"a line of {_LINE_BYTES // 1000} kB through `sbx exec`", milliseconds(ours_s), more)


def _first_byte(home: BenchHome) -> Row:
    """From a command's first word until we read it: both look at one clock."""
    (ours_s,) = interleaved(lambda: _lateness(home), rounds=5)
    return ("from a command's first byte to ours", milliseconds(ours_s), "at most 50 ms")


def _lateness(home: BenchHome) -> float:
    line = "sleep 0.3; date +%s.%N; sleep 0.3"
    command = [*SBX, "exec", "bench", "--", "sh", "-c", line]
    with subprocess.Popen(
        command, env=home.env, cwd=home.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        stamp = child.stdout.readline()
        return time.time() - float(stamp)


def _memory(home: BenchHome) -> Row:
    base_bytes = _peak_rss_bytes(home, ["true"])
    grown_bytes = _peak_rss_bytes(home, ["sh", "-c", f"yes | head -c {_MOST_BYTES}"]) - base_bytes
    return ("memory of `sbx exec` for 1 GB more", f"{grown_bytes / 2**20:.1f} MiB", "at most 32 MiB")


def _peak_rss_bytes(home: BenchHome, command: Sequence[str]) -> int:
    with Path(os.devnull).open("wb") as nowhere:
        child = subprocess.Popen(
            [*SBX, "exec", "bench", "--", *command], env=home.env, stdin=subprocess.DEVNULL, stdout=nowhere
        )
        _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        raise RuntimeError(f"`{' '.join(command)}` ended with {child.returncode}")
    return usage.ru_maxrss * 1024


if __name__ == "__main__":
    for row in run():
        sys.stdout.write("{:<42} {:<28} {}\n".format(*row))
