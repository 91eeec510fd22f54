"""Writing down what clients ask for, so that people see it: the first call at once, of a flood only every so often."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from sbxtui.wiring import Services

_EVERY_S = 0.25


@dataclass(slots=True)
class _Seen:
    """Calls of one client that are not written down yet."""

    calls: int = 0
    tool: str = ""
    code: str = ""


class Tally:
    """Counts the calls of one server's clients. `start` runs what writes them down, and is waited for at the end."""

    def __init__(self, start: Callable[[Coroutine[Any, Any, object]], None]) -> None:
        self._start = start
        self._seen: dict[Services, _Seen] = {}
        self._is_writing = False
        self._ending = asyncio.Event()

    def note(self, services: Services, tool: str, code: str) -> None:
        """A call ended so."""
        seen = self._seen.setdefault(services, _Seen())
        seen.calls, seen.tool, seen.code = seen.calls + 1, tool, code
        if not self._is_writing:
            self._is_writing = True
            self._start(self._write())

    def end(self) -> None:
        """Write at once what there is from here on."""
        self._ending.set()

    async def _write(self) -> None:
        try:
            while self._seen:
                seen, self._seen = self._seen, {}
                await asyncio.to_thread(_write_down, seen)
                with suppress(TimeoutError):
                    async with asyncio.timeout(_EVERY_S):
                        await self._ending.wait()
        finally:
            self._is_writing = False


def _write_down(seen: dict[Services, _Seen]) -> None:
    for services, one in seen.items():
        services.clients.called(services.actor, one.tool, one.code, one.calls)
