"""Bringing output into a transcript without starving keys and painting."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from time import perf_counter
from typing import Generic, TypeVar

from sbxtui.tui.widgets.transcript import Transcript

# A flood gets a third of the time: after this much work, reading rests for twice as long, and keys and painting run.
_WORK_S = 0.008
_RESTS_PER_WORK = 2
# What takes longer than this was waited for.
_STEP_S = 0.0005
_BUNCH_EVERY_S = 0.05

# So long after a key everything else waits, and then for twice as long no key makes it wait.
_KEYS_FIRST_S = 0.1

T = TypeVar("T")


class Keys:
    """What was typed last: a key is answered before more of a flood is read, however fast keys come."""

    def __init__(self) -> None:
        self.quiet_until = 0.0
        self._free_until = 0.0
        self._pressed_at = 0.0

    @property
    def quiet_for_s(self) -> float:
        """So long nobody has typed."""
        return perf_counter() - self._pressed_at

    def pressed(self) -> None:
        """A person pressed a key."""
        now = self._pressed_at = perf_counter()
        if now >= self._free_until:
            self.quiet_until = now + _KEYS_FIRST_S
            self._free_until = self.quiet_until + 2 * _KEYS_FIRST_S


# There is one person at one keyboard.
KEYS = Keys()


class Pace:
    """Rests between pieces of work when there is much of it."""

    def __init__(self) -> None:
        self._worked_s = 0.0

    async def rest_after(self, began: float) -> None:
        """Work that began at `began` (`perf_counter`) is done; rests when enough was."""
        now = perf_counter()
        self._worked_s += now - began
        if self._worked_s >= _WORK_S or now < KEYS.quiet_until:
            rest_s, self._worked_s = self._worked_s * _RESTS_PER_WORK, 0.0
            await asyncio.sleep(max(rest_s, KEYS.quiet_until - now))

    async def rest_after_step(self, since: float) -> float:
        """The same for one step of many that are waited for, the last of which ended at `since`; returns the time."""
        await self.rest_after(max(since, perf_counter() - _STEP_S))
        return perf_counter()


class Bunches(Generic[T]):
    """Takes things one by one and hands them on together: the first at once, then in bunches, some a second.

    Args:
        hand_on: Called in the loop's thread with all that came.
    """

    def __init__(self, hand_on: Callable[[list[T]], object]) -> None:
        self._hand_on = hand_on
        self._held: list[T] = []
        self._last_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def add(self, one: T) -> None:
        """One more."""
        self._held.append(one)
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(self._last_s + _BUNCH_EVERY_S, self.flush)

    def flush(self) -> None:
        """Hand on what there is; to be called at the end, too."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._last_s = asyncio.get_running_loop().time()
        if self._held:
            held, self._held = self._held, []
            self._hand_on(held)


def last_of(pieces: Sequence[tuple[str, bytes]], limit_bytes: int) -> tuple[Sequence[tuple[str, bytes]], int]:
    """The last of some pieces, whole, as many as hold so many bytes; and how many bytes lie before them."""
    size_bytes = 0
    for at in range(len(pieces) - 1, -1, -1):
        size_bytes += len(pieces[at][1])
        if size_bytes >= limit_bytes:
            return pieces[at:], sum(len(data) for _, data in pieces[:at])
    return pieces, 0


def feeder(transcript: Transcript, on_more: Callable[[], object]) -> Callable[[str, bytes], Awaitable[None]]:
    """A receiver of output that rests when there is much, and calls `on_more` for each piece that it took."""
    pace = Pace()

    async def feed(channel: str, data: bytes) -> None:
        began = perf_counter()
        transcript.feed(channel, data)
        on_more()
        await pace.rest_after(began)

    return feed
