"""What Get and List showed a moment ago: on the platform they lag behind what has happened."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable

from sbxtui.localcloud.records import Record

_KEPT = 16


class Lagging:
    """Shows each sandbox as it was `lag_s` seconds ago; one that is younger as it was first."""

    def __init__(self, lag_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._lag_s = lag_s
        self._clock = clock
        self._past: dict[str, deque[tuple[float, Record]]] = {}

    def note(self, record: Record) -> None:
        """It is so from now on."""
        if self._lag_s:
            self._past.setdefault(record.id, deque(maxlen=_KEPT)).append((self._clock(), record))

    def shown(self, record: Record) -> Record:
        """What is told of a sandbox that is `record` now."""
        until = self._clock() - self._lag_s
        past = self._past.get(record.id, ())
        old = [seen for at, seen in past if at <= until]
        return old[-1] if old else next((seen for _, seen in past), record)

    def forget_all_but(self, ids: Iterable[str]) -> None:
        """Only these still exist."""
        for gone in self._past.keys() - set(ids):
            del self._past[gone]
