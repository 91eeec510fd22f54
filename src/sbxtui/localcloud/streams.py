"""The open connections through one endpoint: who is connected, when a byte last passed, and cutting them all."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from sbxtui.localcloud.duplex import Duplex


@dataclass(slots=True)
class Traffic:
    """One endpoint's traffic. `epoch` grows with every cut, so that a connection made before one is known as stale."""

    epoch: int = 0
    last_byte_at: float = field(default_factory=time.monotonic)
    _cutters: set[Callable[[], None]] = field(default_factory=set)
    _dials: set[asyncio.Task[Duplex]] = field(default_factory=set)

    def touch(self) -> None:
        """A byte passed, in either direction."""
        self.last_byte_at = time.monotonic()

    @property
    def idle_s(self) -> float:
        """Seconds since the last byte."""
        return time.monotonic() - self.last_byte_at

    def add(self, cut: Callable[[], None]) -> None:
        """Have `cut` called when all streams must end."""
        self._cutters.add(cut)

    def remove(self, cut: Callable[[], None]) -> None:
        """The stream ended by itself."""
        self._cutters.discard(cut)

    def cut_all(self) -> None:
        """End every stream and every dial under way: the sandbox behind them is frozen or gone."""
        self.epoch += 1
        for cut in list(self._cutters):
            cut()
        for dial in list(self._dials):
            dial.cancel()

    async def dialled(self, dial: asyncio.Task[Duplex]) -> Duplex | None:
        """The result of a dial, or None if it was cut; cancelling the caller cancels the dial."""
        self._dials.add(dial)
        try:
            await asyncio.wait({dial})
        finally:
            self._dials.discard(dial)
            if not dial.done():
                dial.cancel()
        return None if dial.cancelled() else dial.result()
