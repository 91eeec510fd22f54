"""Hints that something in the sandbox's folder changed.

Asking keeps a sandbox awake, so it ends some minutes after the last change on either side; what happens then is found
when something changes here, or when somebody asks.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from sbxtui.core.errors import SbxError
from sbxtui.services.sync.pair import Pair

_QUIET_S = 300.0
_RETRY_S = 2.0


class GuestWatch:
    """Asks for the sandbox's changes until it is cancelled.

    Args:
        pair: Whose sandbox.
        on_hint: Called with paths at and below which to look; the empty one is everything.
    """

    def __init__(self, pair: Pair, on_hint: Callable[[set[bytes]], None]) -> None:
        self._pair = pair
        self._on_hint = on_hint
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
            if not self._pair.cursor or time.monotonic() - self._quiet_from_s > _QUIET_S:
                self._awake.clear()
                await self._awake.wait()
                continue
            try:
                changes = await self._pair.guest.changes(cursor or self._pair.cursor)
            except SbxError:
                # The link notices by itself, and compares everything then.
                cursor = ""
                await asyncio.sleep(_RETRY_S)
                continue
            cursor = changes.cursor
            hinted = {b""} if changes.must_rescan else set(changes.paths)
            if hinted:
                self._quiet_from_s = time.monotonic()
                self._on_hint(hinted)
