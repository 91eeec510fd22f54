"""Seeing: a dashboard whose log is flooded, what it keeps, and what a guest pays for telling what it uses."""

from __future__ import annotations

import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from bench.dashboard import AN_EMPTY_APP, EMPTY, Load, cpu_row, cpu_s, measured_load, mib, percent
from bench.guest import running_guest
from bench.support import SBX, Row, bench_home, ratio_row

_ROOT = Path(__file__).resolve().parents[1]
_MEASURED_S = 10.0
_LINES_PER_S = 10_000
_SANDBOXES = 20
# Into the logs tab, from the list; up pauses there, and the end is followed again.
_TO_LOGS = b"2\t"
_ANSWERS = ((b"k", b"PAUSED"), (b"G", b"following"))

# Twenty sandboxes, looked at once a second, and the log of the first at ten thousand lines a second.
_FLOODED = """
import asyncio, pathlib, sys, time
from sbxtui.settings import Settings
from sbxtui.tui.app import run_dashboard
from tests.support.fake_seeing import FakeSeeing, line
from tests.support.fake_services import FakeCloud, home_at, sandbox, services_for
rate = int(sys.argv[2])
class Flood(FakeSeeing):
    async def lines(self, row, query, *, is_asked=True):
        began, told = time.monotonic(), 0
        while True:
            due = int((time.monotonic() - began) * rate)
            for number in range(told, due):
                yield line(f"worker-{number % 7} GET /items/{number} 200 {number % 90}.4ms " + "x" * 40)
            told = max(told, due)
            await asyncio.sleep(0.01)
root = pathlib.Path(sys.argv[1])
rows = [sandbox(f"s{number:02}") for number in range(int(sys.argv[3]))]
run_dashboard(Settings(home=home_at(root)), services_for(root, FakeCloud(sandboxes=rows, seeing=Flood())))
"""
# The same lines as a command says them.
_SAYING = f"""
import time
began, told = time.monotonic(), 0
while True:
    due = int((time.monotonic() - began) * {_LINES_PER_S})
    lines = (f"worker-{{n % 7}} GET /items/{{n}} 200 {{n % 90}}.4ms " + "x" * 40 for n in range(told, due))
    print(*lines, sep="\\n", flush=True)
    told = max(told, due)
    time.sleep(0.01)
"""


def run() -> list[Row]:
    """Rows of all figures; takes about four minutes."""
    with bench_home() as home:
        env = {**home.env, "PYTHONPATH": str(_ROOT)}
        command = [sys.executable, "-c", _FLOODED, str(home.folder / "flood"), str(_LINES_PER_S), str(_SANDBOXES)]
        flooded = measured_load(command, env, b"live", keys=_TO_LOGS, answers=_ANSWERS)
        empty = measured_load([sys.executable, "-c", EMPTY], home.env, b"ready")
        for number in range(_SANDBOXES):
            home.sbx("create", f"s{number:02}", "--memory", "512")
        home.sbx("exec", "-d", "s00", "--", "python3", "-c", _SAYING)
        whole = measured_load(SBX, home.env, b"live", keys=_TO_LOGS, answers=_ANSWERS)
    asked, idle = _guest_shares()
    told = f"a log at {_LINES_PER_S:,} lines a second, {_SANDBOXES} sandboxes"
    return [
        *_load_rows(told, flooded, empty),
        *_load_rows(f"{told}, all of the local cloud", whole, empty),
        ("a guest that tells what it uses once a second", percent(asked), f"{percent(idle)} one that is not asked"),
    ]


def _load_rows(what: str, load: Load, empty: Load) -> list[Row]:
    memory = f"{mib(empty.rss_bytes)} {AN_EMPTY_APP}, {mib(load.rss_bytes - empty.rss_bytes)} more"
    return [
        cpu_row(what, load.cpu, empty.cpu),
        (f"{what}: memory with 100,000 lines kept", mib(load.rss_bytes), memory),
        ratio_row(f"{what}: a key's answer, p95", load.echo_p95_s, empty.echo_p95_s, AN_EMPTY_APP),
    ]


def _guest_shares() -> tuple[float, float]:
    """Shares of a core of a guest's server: while it tells its metrics once a second, and at rest."""
    with tempfile.TemporaryDirectory(prefix="sbx-bench-") as name, running_guest(Path(name)) as (port, pid):
        idle = _share(pid)
        url = f"http://127.0.0.1:{port}/v2/metrics?follow=1&interval_s=1"
        with urllib.request.urlopen(url, timeout=30) as answer:
            answer.readline()
            return _share(pid), idle


def _share(pid: int) -> float:
    before_s, began = cpu_s(pid), time.perf_counter()
    time.sleep(_MEASURED_S)
    return (cpu_s(pid) - before_s) / (time.perf_counter() - began)
