"""How far a first look at a folder has come, told while it goes on: it may be far larger than anybody thinks."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable

from sbxguest.tree import Record
from sbxtui.core.text import harmless_line
from sbxtui.services.sync.model import Path
from sbxtui.services.sync.status import entries_of, shown

_TELL_EVERY_S = 0.5
_MANY_ENTRIES = 100_000
_NAMED = 3
OnGauge = Callable[[int, str], object]


class TakesLong(Exception):
    """A look goes on for longer than was to be waited for."""


class Gauge:
    """Counts what a look finds. Used in the thread that looks.

    Args:
        tell: Called now and then with how many entries there are so far, and a warning; empty for none.
        patience_s: After so long the look is ended by `TakesLong`.
    """

    def __init__(self, tell: OnGauge, *, patience_s: float = math.inf) -> None:
        self._tell = tell
        self._told_s = time.monotonic()
        self._until_s = self._told_s + patience_s
        self._count = 0
        self._places: Counter[Path] = Counter()

    def see(self, records: list[Record]) -> None:
        """More entries, all of one folder."""
        self._count += len(records)
        in_root = [record.path for record in records if b"/" not in record.path]
        self._places.update(in_root)
        if len(in_root) < len(records):
            self._places[records[-1].path.partition(b"/")[0] + b"/"] += len(records) - len(in_root)

    def check(self) -> None:
        """Tell, if it is time to; called often, also while one large file is read."""
        now_s = time.monotonic()
        if now_s > self._until_s:
            raise TakesLong
        if now_s - self._told_s >= _TELL_EVERY_S:
            self._told_s = now_s
            self._tell(self._count, self._warning())

    def _warning(self) -> str:
        if self._count < _MANY_ENTRIES:
            return ""
        largest = [f"{harmless_line(shown(path))} {count:,}" for path, count in self._places.most_common(_NAMED)]
        return (
            f"{entries_of(self._count)} so far, the most in {', '.join(largest)}; "
            "a `.sbxignore` leaves out what is not meant"
        )
