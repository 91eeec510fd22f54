"""Pieces of every benchmark: a throw-away home, child processes with their memory, interleaved medians."""

from __future__ import annotations

import asyncio
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

Row = tuple[str, str, str]
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]

SBX = (sys.executable, "-m", "sbxtui")
# Starts the command from a process that is small: a program's peak memory begins with that of the one that started it.
_STARTER = """
import os, sys, time
os.set_inheritable(int(sys.argv[1]), False)
began = time.perf_counter()
pid = os.posix_spawnp(sys.argv[2], sys.argv[2:], os.environ)
_, status, usage = os.wait4(pid, 0)
took = time.perf_counter() - began
os.write(int(sys.argv[1]), f"{took} {usage.ru_maxrss} {os.waitstatus_to_exitcode(status)}".encode())
"""
_FOREIGN = ("SBX_", "AGENT_SANDBOX_", "AWS_", "PYTHONDONTWRITEBYTECODE")


@dataclass(frozen=True, slots=True)
class Ended:
    """A finished child: its wall time, and the most memory it ever held."""

    duration_s: float
    peak_rss_bytes: int
    stdout: bytes


@dataclass(frozen=True, slots=True)
class BenchHome:
    """A home of its own below a temporary folder, on the local cloud."""

    folder: Path
    env: Mapping[str, str]

    def sbx(self, *arguments: str) -> Ended:
        """Run one `sbx` command in a new process; raises RuntimeError when it fails."""
        return run_child([*SBX, *arguments], env=self.env, cwd=self.folder)


@contextmanager
def bench_home() -> Iterator[BenchHome]:
    """A fresh home; afterwards its sandboxes and its local cloud are gone."""
    # What was told to stop may write its last word while the folder goes.
    with tempfile.TemporaryDirectory(prefix="sbx-bench-", ignore_cleanup_errors=True) as name:
        env = {key: value for key, value in os.environ.items() if not key.startswith(_FOREIGN)}
        home = BenchHome(Path(name), {**env, "SBX_HOME": name, "NO_COLOR": "1"})
        try:
            yield home
        finally:
            for closing in (("rm", "--all", "--yes"), ("runner", "stop"), ("local", "stop")):
                subprocess.run(
                    [*SBX, *closing],
                    env=home.env,
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    timeout=60,
                    check=False,
                )


@contextmanager
def serving(module: str, *words: str) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """A module in a process of its own that prints the port it serves, and the process; killed with the block."""
    process = subprocess.Popen([sys.executable, "-m", module, *words], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline()), process
    finally:
        process.kill()
        process.communicate()


async def asked(streams: Streams, count: int, request: bytes) -> list[float]:
    """Seconds of so many requests, one after another on one connection, each answered with 100 bytes."""
    reader, writer = streams
    took_s: list[float] = []
    for _ in range(count):
        began = time.perf_counter()
        writer.write(request)
        await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(100)
        took_s.append(time.perf_counter() - began)
    return took_s


def run_child(command: Sequence[str], *, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> Ended:
    """Run `command` to its end.

    Raises:
        RuntimeError: It ended with another code than 0; the message has its last words.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        told, tell = os.pipe()
        starter = [sys.executable, "-I", "-S", "-c", _STARTER, str(tell), *command]
        with open(told, "rb") as report:  # noqa: PTH123 - a descriptor
            try:
                subprocess.run(
                    starter,
                    env=env,
                    cwd=cwd,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    pass_fds=[tell],
                    check=False,
                )
            finally:
                os.close(tell)
            duration_s, peak_kib, code = report.read().split() or (b"0", b"0", b"-1")
        if code != b"0":
            err.seek(0)
            words = err.read()[-800:].decode(errors="replace")
            raise RuntimeError(f"{' '.join(command)} ended with {int(code)}: {words}")
        out.seek(0)
        return Ended(float(duration_s), int(peak_kib) * 1024, out.read())


def run_within(
    limit_s: float, command: Sequence[str], *, env: Mapping[str, str] | None = None, stdin: IO[bytes] | None = None
) -> None:
    """Run `command` to its end, which is noticed at once; it is killed after `limit_s`.

    Raises:
        RuntimeError: It ended with another code than 0, or was killed.
    """
    with subprocess.Popen(command, env=env, stdin=stdin) as process:
        code = ended_within(limit_s, process)
    if code:
        raise RuntimeError(f"{' '.join(command)} ended with {code}")


def ended_within(limit_s: float, process: subprocess.Popen[bytes]) -> int:
    """The code a process ends with, as soon as it does; it is killed after `limit_s`.

    A wait that is given a limit itself looks only every 50 ms whether the process has ended.
    """
    killing = threading.Timer(limit_s, process.kill)
    killing.start()
    try:
        return process.wait()
    finally:
        killing.cancel()


def interleaved(*sides: Callable[[], float], rounds: int) -> list[float]:
    """The median of each side over `rounds` rounds of one call each; a first round warms up and is dropped."""
    samples: list[list[float]] = [[] for _ in sides]
    for number in range(rounds + 1):
        for kept, side in zip(samples, sides, strict=True):
            value = side()
            if number:
                kept.append(value)
    return [statistics.median(kept) for kept in samples]


async def quantiles_ms(work: Callable[[], Awaitable[object]], *, runs: int) -> tuple[float, float]:
    """The tenth and the fiftieth percentile of `work`'s duration: what it costs, and what it costs here and now."""
    spans: list[float] = []
    for _ in range(runs):
        began_s = time.perf_counter()
        await work()
        spans.append((time.perf_counter() - began_s) * 1000)
    return statistics.quantiles(spans, n=10)[0], statistics.median(spans)


def quantiles(span_ms: tuple[float, float]) -> str:
    """Both as a cell."""
    return f"{span_ms[0]:.2f} p10, {span_ms[1]:.2f} p50 ms"


async def bare_true() -> None:
    """The least that starting a program costs."""
    pid = os.posix_spawn("/bin/true", ["true"], {})  # noqa: ASYNC221 - the blocking start is what is measured
    os.waitpid(pid, 0)  # noqa: ASYNC222 - as above


def ratio_row(what: str, ours_s: float, theirs_s: float, theirs: str) -> Row:
    """A row for two durations in seconds."""
    return (what, milliseconds(ours_s), f"{milliseconds(theirs_s)} {theirs}, {ours_s / theirs_s:.2f} ×")


def milliseconds(duration_s: float) -> str:
    """Seconds as people compare them: `0.83 ms`, `41 ms`, `1.24 s`."""
    value = duration_s * 1000
    if value >= 1000:
        return f"{duration_s:.2f} s"
    return f"{value:.0f} ms" if value >= 10 else f"{value:.2f} ms"


def machine_facts() -> str:
    """One line on what was measured on; nothing that tells one machine from another of its kind."""
    cpuinfo = Path("/proc/cpuinfo")
    model = re.search(r"^model name\s*:\s*(.+)$", cpuinfo.read_text(), re.MULTILINE) if cpuinfo.exists() else None
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    kernel = ".".join(platform.release().split(".")[:2])
    return (
        f"{os.cpu_count()} cores ({model.group(1) if model else platform.machine()}), {memory_gib:.0f} GiB, "
        f"{platform.system()} {kernel}, Python {platform.python_version()}"
    )
