"""What an endpoint of some size may carry at once, as the platform documents it; without ceilings: whatever comes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from sbxtui.core.model import VCPUS_BY_MEMORY_MIB
from sbxtui.localcloud.relay import Reader, Sink, Source

_MB = 1_000_000
# Measured: one more than the documented number of connections was not refused. How many are is not known.
_REFUSED_FROM = 2


@dataclass(frozen=True, slots=True)
class Ceiling:
    """Of one size."""

    connections: int
    requests_per_s: float
    bytes_per_s: float


def ceiling_of(memory_mib: int) -> Ceiling:
    """The platform's, by the processors a sandbox of this size peaks at."""
    vcpus = VCPUS_BY_MEMORY_MIB[memory_mib]
    return Ceiling(8 * vcpus, 10 * vcpus, _MB * vcpus)


class Allowance:
    """One endpoint's, used up by what passes it. `clock` gives seconds."""

    def __init__(self, ceiling: Ceiling | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._ceiling = ceiling
        self._clock = clock
        self._open = 0
        self._requests = _Bucket(ceiling.requests_per_s if ceiling else 0.0, clock)
        self._bytes = _Bucket(ceiling.bytes_per_s if ceiling else 0.0, clock)

    def open_connection(self) -> bool:
        """One more connection; False: it is one too many. `close_connection` is called for it in either case."""
        self._open += 1
        return self._ceiling is None or self._open <= self._ceiling.connections * _REFUSED_FROM

    def close_connection(self) -> None:
        """It is gone."""
        self._open -= 1

    def take_request(self) -> bool:
        """One more request; False: it comes too soon after the others."""
        if self._ceiling is None:
            return True
        if self._requests.short_of(1) > 0:
            return False
        self._requests.take(1)
        return True

    async def take_bytes(self, count: int) -> None:
        """So many bytes pass; waits where they came too fast: too much is never an error."""
        if self._ceiling is not None:
            self._bytes.take(count)
            await asyncio.sleep(self._bytes.short_of(0))


class PacedSource(Source):
    """A source that gives no faster than an endpoint may carry."""

    def __init__(self, reader: Reader, allowance: Allowance) -> None:
        super().__init__(reader)
        self._allowance = allowance

    async def read(self, most: int = 65_536) -> bytes:
        """As `Source.read`."""
        data = await super().read(most)
        await self._allowance.take_bytes(len(data))
        return data


class PacedSink:
    """A writer that takes no faster than an endpoint may carry, and breaks off after `cut_after` bytes.

    `cut` is called then.
    """

    def __init__(
        self, writer: Sink, allowance: Allowance, cut_after: int | None = None, cut: Callable[[], None] = lambda: None
    ) -> None:
        self._writer = writer
        self._allowance = allowance
        self._left = cut_after
        self._cut = cut
        self._owed = 0

    def write(self, data: bytes) -> None:
        """As a StreamWriter's."""
        if self._left is not None:
            data, self._left = data[: self._left], self._left - len(data[: self._left])
        self._owed += len(data)
        self._writer.write(data)

    async def drain(self) -> None:
        """As a StreamWriter's."""
        owed, self._owed = self._owed, 0
        await self._allowance.take_bytes(owed)
        await self._writer.drain()
        if self._left == 0:
            self._cut()
            raise ConnectionAbortedError("cut off on purpose")


class _Bucket:
    """What runs in at a rate, up to a second's worth, and may be owed."""

    def __init__(self, per_s: float, clock: Callable[[], float]) -> None:
        self._per_s = per_s
        self._clock = clock
        self._left = per_s
        self._at = clock()

    def take(self, count: float) -> None:
        self._refill()
        self._left -= count

    def short_of(self, count: float) -> float:
        """Seconds until so much is there."""
        self._refill()
        return max(0.0, count - self._left) / self._per_s

    def _refill(self) -> None:
        now = self._clock()
        self._left = min(self._per_s, self._left + (now - self._at) * self._per_s)
        self._at = now
