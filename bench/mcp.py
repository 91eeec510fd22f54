"""The MCP server for agents, against a server with one empty tool on the same SDK."""

from __future__ import annotations

import signal
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from bench.mcp_process import Server, served
from bench.support import SBX, BenchHome, Row, bench_home, ended_within, milliseconds, ratio_row

ROUNDS = 5
CALLS = 300
LISTS = 50
LOAD_CALLS, LOAD_WIDTH = 800, 8
EVENTS = 20

_HELLO = """
from mcp.server import MCPServer
server = MCPServer("hello")
@server.tool()
async def sandbox_capabilities() -> str:
    return "hello"
server.run("stdio")
"""
_TOOL = "sandbox_capabilities"
_THEIRS = "the empty server"
# Once, on two cores like these: a server with one empty tool on version 1 of the SDK, which `asb mcp` stands on.
_ASB = "0.45 to 0.56 s one on the SDK of `asb mcp`"
# A client that leaves sooner than this after it asked for something is a script, which is answered first.
_NO_SCRIPT_S = 1.5
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_SANDBOX = "bench"
_GIGABYTE = "head -c 1000000000 /dev/zero | tr '\\0' 'x'"


def run() -> list[Row]:
    """Rows of start, calls, load, memory, events and ends; takes about two minutes."""
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
        start = ratio_row("start of the server to its first answer", our_start_s, hello_start_s, _THEIRS)
        with _served(commands[0], home) as ours, _served(commands[1], home) as hello:
            rows = [
                (start[0], start[1], f"{start[2]}; {_ASB}"),
                ratio_row("the first call", our_first_s, hello_first_s, _THEIRS),
                _memory("memory at rest", ours, hello),
                *_calls(ours, hello),
                *_load(ours, hello),
                _memory("memory after all this", ours, hello),
            ]
        return [*rows, *_with_a_sandbox(home)]


def _served(command: Sequence[str], home: BenchHome) -> AbstractContextManager[Server]:
    return served(command, home.env, home.folder)


def _medians(samples: Sequence[tuple[float, float]]) -> tuple[float, float]:
    starts, firsts = zip(*samples, strict=True)
    return statistics.median(starts), statistics.median(firsts)


def _memory(what: str, ours: Server, hello: Server) -> Row:
    for server in (ours, hello):
        server.call(_TOOL)
    return (what, _mebibytes(ours), f"{_mebibytes(hello)} {_THEIRS}")


def _mebibytes(server: Server) -> str:
    return f"{server.rss_bytes / 2**20:.0f} MiB"


def _calls(ours: Server, hello: Server) -> Iterator[Row]:
    lists = _spans(LISTS, [lambda: ours.timed("tools/list", {}), lambda: hello.timed("tools/list", {})])
    ours_s, hello_s = map(statistics.median, lists)
    yield ratio_row("tools/list", ours_s, hello_s, _THEIRS)
    spans = _spans(CALLS, [lambda: ours.call(_TOOL), lambda: hello.call(_TOOL)])
    hundredths = [statistics.quantiles(kept, n=100) for kept in spans]
    for name, place in (("p50", 49), ("p99", 98)):
        ours_s, hello_s = (found[place] for found in hundredths)
        yield ratio_row(f"a call that asks no sandbox, {name}", ours_s, hello_s, _THEIRS)


def _spans(rounds: int, sides: Sequence[Callable[[], float]]) -> list[list[float]]:
    """The spans of each side, taken in turns."""
    spans: list[list[float]] = [[] for _ in sides]
    for _ in range(rounds):
        for kept, side in zip(spans, sides, strict=True):
            kept.append(side())
    return spans


def _load(ours: Server, hello: Server) -> Iterator[Row]:
    before = [server.cpu_s for server in (ours, hello)]
    rates = [_calls_per_s(server) for server in (ours, hello)]
    ours_s, hello_s = ((server.cpu_s - then) / LOAD_CALLS for server, then in zip((ours, hello), before, strict=True))
    cells = [f"{rate:.0f} calls/s" for rate in rates]
    yield (f"{LOAD_WIDTH} callers at once", cells[0], f"{cells[1]} {_THEIRS}, {rates[0] / rates[1]:.2f} ×")
    yield ratio_row("processor time of each of those calls", ours_s, hello_s, _THEIRS)


def _calls_per_s(server: Server) -> float:
    def work() -> None:
        for _ in range(LOAD_CALLS // LOAD_WIDTH):
            server.call(_TOOL)

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
    with served(command, env, folder) as server:
        return time.perf_counter() - began_s, server.call(_TOOL)


def _with_a_sandbox(home: BenchHome) -> Iterator[Row]:
    command = [*SBX, "--mcp"]
    home.sbx("create", _SANDBOX, "--memory", "512")
    with _served(command, home) as server:
        server.call("sandbox_shell", name=_SANDBOX, command=_GIGABYTE, timeout=600, wait_ms=600_000)
        yield ("memory after a command that said 1 GB", _mebibytes(server), "")
    with _served(command, home) as changing, _served(command, home) as hearing:
        hearing.ask("resources/subscribe", {"uri": f"sbx://sandboxes/{_SANDBOX}"})
        spans = sorted(_until_heard(changing, hearing, number) for number in range(EVENTS))
        told = f"{milliseconds(statistics.median(spans))}, at most {milliseconds(spans[-1])}"
        yield ("from asking one server for a change to another's subscriber", told, "")
    yield _ends(command, home)


def _until_heard(changing: Server, hearing: Server, number: int) -> float:
    while not hearing.told.empty():
        hearing.told.get()
    began_s = time.perf_counter()
    changing.call("sandbox_fs_write", name=_SANDBOX, path="changed", content=str(number))
    hearing.told.get(timeout=60)
    return time.perf_counter() - began_s


def _ends(command: Sequence[str], home: BenchHome) -> Row:
    """The end of a server in the middle of a command, by each way there is."""
    told = []
    for number in (None, *_SIGNALS):
        with _served(command, home) as server:
            # All it needs is loaded.
            server.call("sandbox_status", name=_SANDBOX)
            asked = {"name": "sandbox_shell", "arguments": {"name": _SANDBOX, "command": "echo begun; sleep 600"}}
            server.begin("tools/call", asked)
            time.sleep(_NO_SCRIPT_S)
            began_s = time.perf_counter()
            if number is None:
                server.hang_up()
            else:
                server.process.send_signal(number)
            ended_within(60, server.process)
            name = "EOF" if number is None else number.name
            told.append(f"{name} {milliseconds(time.perf_counter() - began_s)}")
    return ("from each end with a command in flight to the server's", ", ".join(told), "")
