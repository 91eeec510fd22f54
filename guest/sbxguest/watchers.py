"""Who reads a job's log, how far those it waits for have come, and what happens when nobody reads."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from sbxguest import wire
from sbxguest.runclock import RunClock

# No printable name begins so.
_NAMELESS = "\0"


class Watched(Protocol):
    """A job, as far as its watchers know it."""

    @property
    def is_finished(self) -> bool:
        """Whether there is nothing to wait for any more."""

    def stop_holding(self) -> None:
        """Nobody came back: keep only what the ring holds from now on."""

    def use_room(self) -> None:
        """A reader is not waited for any more: there may be room for more output."""

    def end(self) -> None:
        """End the job."""


@dataclass(slots=True)
class _Holder:
    """A reader that is waited for: has everything before `cursor`. One that comes again is there twice for a while."""

    cursor: int
    connections: int = 0
    leaving: asyncio.Task[None] | None = None


class Watchers:
    """Belongs to its job. `holds` is whether the job waits for a reader at all, now.

    Each holding reader has a cursor of its own, under its name. One that left counts on for the grace period, and has
    its cursor back if it returns by then: a line that was cut costs it nothing.
    """

    def __init__(self, job: Watched, clock: RunClock, *, holds: bool, ends_alone: bool) -> None:
        self.count = 0
        self.holds = holds
        self._job = job
        self._clock = clock
        self._ends_alone = ends_alone
        self._holders: dict[str, _Holder] = {}
        # What was reached when the last holder was forgotten.
        self._reached = 0
        self._names_given = 0
        self._leaving: asyncio.Task[None] | None = None

    @property
    def acknowledged(self) -> int:
        """Everything before it has reached every reader that is waited for."""
        return min((holder.cursor for holder in self._holders.values()), default=self._reached)

    @contextmanager
    def one(self, *, holds: bool, cursor: int, name: str) -> Iterator[str]:
        """While a reader is there; one without a name takes the place of one without a name that left.

        Yields:
            Its name, for `acknowledge`.
        """
        self.count += 1
        if holds:
            name = name or self._left_nameless(cursor) or self._new_name()
            self._join(name, cursor)
        self.check()
        try:
            yield name
        finally:
            self.count -= 1
            if holds:
                self._part(name)
            self.check()

    def acknowledge(self, name: str, cursor: int) -> None:
        """That holder has everything before `cursor`."""
        holder = self._holders.get(name)
        if holder is not None:
            holder.cursor = max(holder.cursor, cursor)

    def _join(self, name: str, cursor: int) -> None:
        holder = self._holders.setdefault(name, _Holder(cursor))
        holder.cursor = max(holder.cursor, cursor)
        holder.connections += 1
        if holder.leaving is not None:
            holder.leaving.cancel()
            holder.leaving = None

    def _part(self, name: str) -> None:
        holder = self._holders[name]
        holder.connections -= 1
        if holder.connections:
            return
        if self._job.is_finished or not self.holds:
            del self._holders[name]
        else:
            holder.leaving = asyncio.get_running_loop().create_task(self._forget(name))

    async def _forget(self, name: str) -> None:
        await self._clock.sleep(wire.HOLD_GRACE_S)
        self._reached = self.acknowledged
        del self._holders[name]
        self._job.use_room()

    def _left_nameless(self, cursor: int) -> str:
        left = [
            name
            for name, holder in self._holders.items()
            if name.startswith(_NAMELESS) and not holder.connections and holder.cursor <= cursor
        ]
        return max(left, key=lambda name: self._holders[name].cursor, default="")

    def _new_name(self) -> str:
        self._names_given += 1
        return f"{_NAMELESS}{self._names_given}"

    @property
    def _is_held(self) -> bool:
        return any(holder.connections for holder in self._holders.values())

    def check(self) -> None:
        """Look again whether somebody is missed."""
        is_missed = (self.holds and not self._is_held) or (self._ends_alone and not self.count)
        if not is_missed or self._job.is_finished:
            self._miss_nobody()
        elif self._leaving is None:
            self._leaving = asyncio.get_running_loop().create_task(self._leave())

    def close(self) -> None:
        """Wait for nobody any more."""
        self._miss_nobody()
        self.holds = False
        for holder in self._holders.values():
            if holder.leaving is not None:
                holder.leaving.cancel()

    def _miss_nobody(self) -> None:
        if self._leaving is not None:
            self._leaving.cancel()
            self._leaving = None

    async def _leave(self) -> None:
        """Nobody has come back: stop holding, or end a job that was to end with its caller."""
        await self._clock.sleep(wire.HOLD_GRACE_S)
        self._leaving = None
        if self.holds and not self._is_held:
            self.holds = False
            self._job.stop_holding()
        if self._ends_alone and not self.count:
            self._job.end()
        else:
            self.check()
