"""Who reads a job's log, how far the one it waits for has come, and what happens when nobody reads."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from sbxguest import wire
from sbxguest.runclock import RunClock


class Watched(Protocol):
    """A job, as far as its watchers know it."""

    @property
    def is_finished(self) -> bool:
        """Whether there is nothing to wait for any more."""

    def stop_holding(self) -> None:
        """Nobody came back: keep only what the ring holds from now on."""

    def end(self) -> None:
        """End the job."""


class Watchers:
    """Belongs to its job. `holds` is whether the job waits for a reader at all, now."""

    def __init__(self, job: Watched, clock: RunClock, *, holds: bool, ends_alone: bool) -> None:
        self.count = 0
        self.holds = holds
        self.acknowledged = 0
        self._job = job
        self._clock = clock
        self._ends_alone = ends_alone
        self._holders = 0
        self._leaving: asyncio.Task[None] | None = None

    @contextmanager
    def one(self, *, holds: bool) -> Iterator[None]:
        """While a reader is there."""
        self.count += 1
        self._holders += holds
        self.check()
        try:
            yield
        finally:
            self.count -= 1
            self._holders -= holds
            self.check()

    def check(self) -> None:
        """Look again whether somebody is missed."""
        is_missed = (self.holds and not self._holders) or (self._ends_alone and not self.count)
        if not is_missed or self._job.is_finished:
            self.close()
        elif self._leaving is None:
            self._leaving = asyncio.get_running_loop().create_task(self._leave())

    def close(self) -> None:
        """Miss nobody any more."""
        if self._leaving is not None:
            self._leaving.cancel()
            self._leaving = None

    async def _leave(self) -> None:
        """Nobody has come back: stop holding, or end a job that was to end with its caller."""
        await self._clock.sleep(wire.HOLD_GRACE_S)
        self._leaving = None
        if self.holds and not self._holders:
            self.holds = False
            self._job.stop_holding()
        if self._ends_alone and not self.count:
            self._job.end()
        else:
            self.check()
