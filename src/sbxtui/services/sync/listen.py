"""Hints that something in the sandbox's folder changed.

Asking keeps a sandbox awake, so it ends some minutes after the last change on either side, and within half the
sandbox's idle window; what happens then is found when something changes here, or when somebody asks.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from sbxtui.core.errors import SbxError
from sbxtui.guest.tree import MAX_WAIT_S
from sbxtui.services.sync.pair import Pair

LISTENS_S = 300.0
_RETRY_S = 2.0


class GuestWatch:
    """Asks for the sandbox's changes until it is cancelled.

    Args:
        pair: Whose sandbox.
        on_hint: Called with paths at and below which to look; the empty one is everything.
        listens_s: For so long after the last change, five minutes at most.
        runs: Whether the sandbox runs, as its control plane knows; asked once an answer was cut off.
    """

    def __init__(
        self,
        pair: Pair,
        on_hint: Callable[[set[bytes]], None],
        listens_s: float = LISTENS_S,
        runs: Callable[[], Awaitable[bool]] | None = None,
    ) -> None:
        self._pair = pair
        self._on_hint = on_hint
        self._listens_s = min(LISTENS_S, listens_s)
        self._runs = runs
        self._quiet_from_s = time.monotonic()
        self._awake = asyncio.Event()

    def wake(self) -> None:
        """Something changed here: the sandbox is awake for it, and may be asked."""
        self._quiet_from_s = time.monotonic()
        self._awake.set()

    async def run(self) -> None:
        """Ask; ends by being cancelled only."""
        cursor = ""
        while True:
            left_s = self._quiet_from_s + self._listens_s - time.monotonic()
            if not self._pair.cursor or left_s <= 0:
                self._awake.clear()
                await self._awake.wait()
                continue
            try:
                # An answer is traffic, too: none may come when its time is over.
                changes = await self._pair.guest.changes(cursor or self._pair.cursor, wait_s=min(left_s, MAX_WAIT_S))
            except SbxError:
                # The link notices by itself, and compares everything then.
                cursor = ""
                await self._until_it_runs()
                continue
            cursor = changes.cursor
            hinted = {b""} if changes.must_rescan else set(changes.paths)
            if hinted:
                self._quiet_from_s = time.monotonic()
                self._on_hint(hinted)

    async def _until_it_runs(self) -> None:
        """A pause, and on while it is suspended: asking would wake what somebody has put to sleep."""
        while True:
            await asyncio.sleep(_RETRY_S)
            try:
                if self._runs is None or await self._runs():
                    return
            except SbxError:
                continue
