"""Timeouts count running time: a sandbox that slept is not punished for it."""

from __future__ import annotations

import asyncio
import time

from sbxguest.runclock import JUMP_S, TICK_S, RunClock


class Suspending:
    """A monotonic clock that jumps when told to, as a sandbox's does when it is resumed."""

    def __init__(self) -> None:
        self.slept_s = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.slept_s


async def test_a_sleeper_wakes_after_its_span() -> None:
    clock = RunClock()
    async with asyncio.timeout(5):
        await clock.sleep(0.05)
    assert clock.ran_s >= 0.05


async def test_a_jump_counts_as_one_tick() -> None:
    now = Suspending()
    clock = RunClock(now)
    sleeper = asyncio.create_task(clock.sleep(3600))
    await asyncio.sleep(0)
    for _ in range(3):
        now.slept_s += 100_000
        assert clock.ran_s < JUMP_S
    assert clock.ran_s >= 3 * TICK_S
    assert not sleeper.done()
    sleeper.cancel()


async def test_a_clock_set_back_counts_as_one_tick_too() -> None:
    now = Suspending()
    clock = RunClock(now)
    sleeper = asyncio.create_task(clock.sleep(3600))
    await asyncio.sleep(0)
    now.slept_s -= 500
    assert TICK_S <= clock.ran_s < JUMP_S
    sleeper.cancel()


async def test_sleepers_wake_in_order_and_a_cancelled_one_disturbs_no_other() -> None:
    clock = RunClock()
    woken: list[str] = []

    async def sleep(name: str, span_s: float) -> None:
        await clock.sleep(span_s)
        woken.append(name)

    spans = (("c", 0.06), ("a", 0.02), ("x", 0.01), ("b", 0.04))
    tasks = [asyncio.create_task(sleep(name, span_s)) for name, span_s in spans]
    await asyncio.sleep(0)
    tasks[2].cancel()
    async with asyncio.timeout(5):
        await asyncio.gather(*tasks, return_exceptions=True)
    assert woken == ["a", "b", "c"]


async def test_without_sleepers_it_does_nothing_at_all() -> None:
    clock = RunClock()
    async with asyncio.timeout(5):
        await clock.sleep(0.01)
    before = clock.ran_s
    await asyncio.sleep(0.02)
    assert clock.ran_s == before
