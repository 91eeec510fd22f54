"""A clock of running time: what a suspended sandbox slept does not count.

Every clock of a sandbox may jump by the suspended span, and a timer set before would fire at once. So this one counts
ticks: a span between two ticks that is longer than any busy moment can explain is a jump and counts as one tick.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Callable
from itertools import count

TICK_S = 0.25
JUMP_S = 2.0


class RunClock:
    """Ticks only while somebody sleeps on it, so that an idle guest does nothing at all."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._last_s = 0.0
        self._ran_s = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = count()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def ran_s(self) -> float:
        """Running seconds so far; stands still while nobody sleeps."""
        self._credit()
        return self._ran_s

    async def sleep(self, span_s: float) -> None:
        """Return after `span_s` of running time."""
        loop = asyncio.get_running_loop()
        if self._timer is None:
            self._last_s = self._now()
        woken: asyncio.Future[None] = loop.create_future()
        heapq.heappush(self._sleepers, (self.ran_s + span_s, next(self._order), woken))
        self._arm(loop)
        await woken

    def _credit(self) -> None:
        if self._timer is None:
            return
        now_s = self._now()
        span_s = now_s - self._last_s
        self._last_s = now_s
        self._ran_s += span_s if 0 <= span_s <= JUMP_S else TICK_S

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
        wait_s = min(TICK_S, max(0.0, self._sleepers[0][0] - self._ran_s))
        self._timer = loop.call_later(wait_s, self._tick)

    def _tick(self) -> None:
        self._credit()
        self._timer = None
        sleepers = self._sleepers
        while sleepers and (sleepers[0][2].done() or sleepers[0][0] <= self._ran_s):
            woken = heapq.heappop(sleepers)[2]
            if not woken.done():
                woken.set_result(None)
        if sleepers:
            self._arm(asyncio.get_running_loop())
