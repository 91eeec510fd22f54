"""Bringing output into a transcript without starving keys and painting."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import perf_counter

from sbxtui.tui.widgets.transcript import Transcript

# A flood gets a third of the time: after this much work, reading rests for twice as long, and keys and painting run.
_WORK_S = 0.008
_RESTS_PER_WORK = 2


class Pace:
    """Rests between pieces of work when there is much of it."""

    def __init__(self) -> None:
        self._worked_s = 0.0

    async def rest_after(self, began: float) -> None:
        """Work that began at `began` (`perf_counter`) is done; rests when enough was."""
        self._worked_s += perf_counter() - began
        if self._worked_s >= _WORK_S:
            rest_s, self._worked_s = self._worked_s * _RESTS_PER_WORK, 0.0
            await asyncio.sleep(rest_s)


def feeder(transcript: Transcript, on_more: Callable[[], object]) -> Callable[[str, bytes], Awaitable[None]]:
    """A receiver of output that rests when there is much, and calls `on_more` for each piece that it took."""
    pace = Pace()

    async def feed(channel: str, data: bytes) -> None:
        began = perf_counter()
        transcript.feed(channel, data)
        on_more()
        await pace.rest_after(began)

    return feed
