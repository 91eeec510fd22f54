"""The MCP server for agents, against a server with one empty tool on the same SDK."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from bench.support import SBX, Row, bench_home, ratio_row

ROUNDS = 5
CALLS = 300
LOAD_CALLS, LOAD_WIDTH = 800, 8

_HELLO = """
from mcp.server import MCPServer
server = MCPServer("hello")
@server.tool()
async def sandbox_capabilities() -> str:
    return "hello"
server.run("stdio")
"""
_TOOL = "sandbox_capabilities"
_INITIALIZE = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}


class _Server:
    """A server in a process of its own; any number of threads may ask it."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._writing = threading.Lock()
        self._waiting: dict[int, SimpleQueue[dict[str, Any]]] = {}
        self._numbers = iter(range(1, 1 << 30))
        threading.Thread(target=self._read, daemon=True).start()

    def ask(self, method: str, params: Mapping[str, object]) -> dict[str, Any]:
        answer: SimpleQueue[dict[str, Any]] = SimpleQueue()
        with self._writing:
            number = next(self._numbers)
            self._waiting[number] = answer
            self._send({"id": number, "method": method, "params": params})
        found = answer.get(timeout=60)
        if "error" in found or found["result"].get("isError"):
            raise RuntimeError(f"{method} failed: {found}")
        return found

    def initialize(self) -> None:
        self.ask("initialize", _INITIALIZE)
        with self._writing:
            self._send({"method": "notifications/initialized"})

    def call(self) -> float:
        began_s = time.perf_counter()
        self.ask("tools/call", {"name": _TOOL, "arguments": {}})
        return time.perf_counter() - began_s

    @property
    def rss_bytes(self) -> int:
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) * 1024

    def _send(self, message: Mapping[str, object]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self._process.stdin.flush()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            message = json.loads(line)
            if (answer := self._waiting.pop(message.get("id"), None)) is not None:
                answer.put(message)


def run() -> list[Row]:
    """Rows of start, calls, load and memory; takes about half a minute."""
    with bench_home() as home:
        commands = ([*SBX, "--mcp"], [sys.executable, "-c", _HELLO])
        samples: list[list[tuple[float, float]]] = [[], []]
        for number in range(ROUNDS + 1):
            for kept, command in zip(samples, commands, strict=True):
                figures = _started(command, home.env, home.folder)
                # The first one fills the caches of the disk.
                if number:
                    kept.append(figures)
        (our_start_s, our_first_s), (hello_start_s, hello_first_s) = map(_medians, samples)
        with _served(commands[0], home.env, home.folder) as ours, _served(commands[1], home.env, home.folder) as hello:
            return [
                ratio_row("start of the server to its first answer", our_start_s, hello_start_s, "the empty server"),
                ratio_row("the first call", our_first_s, hello_first_s, "the empty server"),
                *_calls(ours, hello),
                *_load(ours, hello),
                (
                    "memory after all this",
                    f"{ours.rss_bytes / 2**20:.0f} MiB",
                    f"{hello.rss_bytes / 2**20:.0f} MiB the empty server",
                ),
            ]


def _medians(samples: Sequence[tuple[float, float]]) -> tuple[float, float]:
    starts, firsts = zip(*samples, strict=True)
    return statistics.median(starts), statistics.median(firsts)


def _calls(ours: _Server, hello: _Server) -> Iterator[Row]:
    spans: list[list[float]] = [[], []]
    for _ in range(CALLS):
        for kept, server in zip(spans, (ours, hello), strict=True):
            kept.append(server.call())
    hundredths = [statistics.quantiles(kept, n=100) for kept in spans]
    for name, place in (("p50", 49), ("p99", 98)):
        ours_s, hello_s = (found[place] for found in hundredths)
        yield ratio_row(f"a call that asks no sandbox, {name}", ours_s, hello_s, "the empty server")


def _load(ours: _Server, hello: _Server) -> Iterator[Row]:
    rates = [_calls_per_s(server) for server in (ours, hello)]
    cells = [f"{rate:.0f} calls/s" for rate in rates]
    yield (f"{LOAD_WIDTH} callers at once", cells[0], f"{cells[1]} the empty server, {rates[0] / rates[1]:.2f} ×")


def _calls_per_s(server: _Server) -> float:
    def work() -> None:
        for _ in range(LOAD_CALLS // LOAD_WIDTH):
            server.call()

    threads = [threading.Thread(target=work) for _ in range(LOAD_WIDTH)]
    began_s = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return LOAD_CALLS / (time.perf_counter() - began_s)


def _started(command: Sequence[str], env: Mapping[str, str], folder: Path) -> tuple[float, float]:
    """Seconds until the handshake was answered, and of the first call after it."""
    began_s = time.perf_counter()
    with _served(command, env, folder) as server:
        return time.perf_counter() - began_s, server.call()


@contextmanager
def _served(command: Sequence[str], env: Mapping[str, str], folder: Path) -> Iterator[_Server]:
    process = subprocess.Popen(
        command, env=env, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        server = _Server(process)
        server.initialize()
        yield server
    finally:
        process.kill()
        process.wait()
