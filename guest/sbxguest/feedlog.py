"""Which paths of a tree may have changed, in the order in which that was noticed."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass

MAX_PATHS = 10_000


@dataclass(frozen=True, slots=True)
class Dirty:
    """What changed since a cursor, or that nobody knows any more (`must_rescan`); and the cursor to go on from."""

    cursor: str
    paths: tuple[bytes, ...]
    must_rescan: bool = False


class DirtyLog:
    """A bounded memory of changed paths. From any thread.

    Args:
        on_change: Called, from whatever thread, when something was added.
    """

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._name = secrets.token_hex(4)
        self._on_change = on_change
        self._lock = threading.Lock()
        self._numbers: dict[bytes, int] = {}
        self._last = 0
        # What happened up to here is forgotten.
        self._forgotten = 0

    @property
    def cursor(self) -> str:
        """Behind all that was noticed."""
        with self._lock:
            return f"{self._name}-{self._last}"

    def add(self, path: bytes) -> None:
        """Note that something at or below a path may have changed."""
        with self._lock:
            self._last += 1
            # Taken out first, so that the dictionary stays in the order of the numbers.
            self._numbers.pop(path, None)
            self._numbers[path] = self._last
            if len(self._numbers) > MAX_PATHS:
                self._forget()
        self._on_change()

    def lose(self) -> None:
        """Note that something may have changed anywhere."""
        with self._lock:
            self._last += 1
            self._forget()
        self._on_change()

    def since(self, cursor: str) -> Dirty:
        """What changed since a cursor."""
        name, _, number = cursor.partition("-")
        with self._lock:
            now = f"{self._name}-{self._last}"
            if name != self._name or not number.isdecimal() or not self._forgotten <= int(number) <= self._last:
                return Dirty(now, (), must_rescan=True)
            after = int(number)
            return Dirty(now, tuple(path for path, at in self._numbers.items() if at > after))

    def _forget(self) -> None:
        self._numbers.clear()
        self._forgotten = self._last
