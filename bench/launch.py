"""A sandbox from nothing to its first command: all that sbx does against the runtime driven by hand.

By hand: bubblewrap with the same guest, and one request for the command. Ours: name, request and token in the store,
RunMicrovm over HTTP, keeper and limits, hooks, an endpoint token, TLS and the proxy, in one process that did it once
before, as the dashboard does. What a new process costs on top is measured in `cli`.
"""

from __future__ import annotations

import asyncio
import itertools
import time

from bench.runtime import Lab, bench_lab, first_command_by_hand
from bench.support import BenchHome, Row, bench_home, interleaved, milliseconds, ratio_row
from sbxtui.services.jobs import Command
from sbxtui.services.launch import CreateOptions
from sbxtui.settings import load
from sbxtui.wiring import Services

_ROUNDS = 9


def run() -> list[Row]:
    """Create until the first command has ended, and how much of it was the launch."""
    with bench_home() as home, bench_lab() as lab, asyncio.Runner() as runner:
        home.sbx("create", "warm")
        services = Services(load(home.env, cwd=home.folder), actor="bench")
        try:
            return _rows(home, lab, runner, services)
        finally:
            services.close()


def _rows(home: BenchHome, lab: Lab, runner: asyncio.Runner, services: Services) -> list[Row]:
    numbers = itertools.count()
    launches: list[float] = []

    def ours() -> float:
        name = f"l{next(numbers)}"
        launched_s, whole_s = runner.run(_create_and_exec(services, name))
        launches.append(launched_s)
        home.sbx("rm", name, "--yes")
        return whole_s

    whole_s, by_hand_s = interleaved(ours, lambda: first_command_by_hand(lab), rounds=_ROUNDS)
    return [
        ratio_row("create until a first command has ended", whole_s, by_hand_s, "by hand"),
        ("of it until `create` returned", milliseconds(sorted(launches)[len(launches) // 2]), ""),
        ("goal: 1.5 × by hand + 150 ms", milliseconds(1.5 * by_hand_s + 0.150), "in this run"),
    ]


async def _create_and_exec(services: Services, name: str) -> tuple[float, float]:
    began = time.perf_counter()
    row = await services.launcher.create(name, CreateOptions())
    launched_s = time.perf_counter() - began
    result = await services.jobs.exec(row, Command(["true"]))
    if result.exit_code != 0:
        raise RuntimeError(f"true ended with {result.exit_code}")
    return launched_s, time.perf_counter() - began
