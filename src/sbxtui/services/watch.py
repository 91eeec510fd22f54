"""Watching the sandboxes of a context: one poller, woken early by the doorbell, patient when it is not looked at.

Watching is not work: it makes list calls to the control plane and never sends a byte to a sandbox.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from sbxtui.core.errors import ControlUnavailable
from sbxtui.core.model import Context
from sbxtui.home import Home
from sbxtui.services.inventory import Inventories, Inventory
from sbxtui.store.doorbell import Listener

LOOKING_EVERY_S = 1.0
# While nothing happens, and when nothing has for a minute; what a face changes rings the bell, so that only the cloud's
# own changes are seen this late.
CALM_EVERY_S, STILL_EVERY_S = 3.0, 5.0
_CALM_AFTER_LOOKS, _STILL_AFTER_LOOKS = 3, 20
AWAY_EVERY_S = 5.0
_LONGEST_PAUSE_S = 30.0
# A burst of changes in the store is one look.
_SHORTEST_PAUSE_S = 0.2
_LOOK_DEADLINE_S = 45.0


class Watch:
    """Looks at a context again and again.

    Args:
        home: Whose doorbell wakes it.
        inventories: Where it looks.
    """

    def __init__(self, home: Home, inventories: Inventories) -> None:
        self._home = home
        self._inventories = inventories
        self._asked = asyncio.Event()
        self._is_looked_at = True
        self._failures = 0
        self._calm_looks = 0

    def look_now(self) -> None:
        """Look at once, whatever pause is kept, and often for a while."""
        self._calm_looks = 0
        self._asked.set()

    def set_looked_at(self, is_looked_at: bool) -> None:
        """Say whether somebody sees the result: if not, it looks less often."""
        if is_looked_at and not self._is_looked_at:
            self._asked.set()
        self._is_looked_at = is_looked_at

    async def follow(self, context: Context) -> AsyncGenerator[Inventory, None]:
        """Yield what is seen, each time it was looked; ends only when closed.

        A control plane that does not answer gives inventories with an error, ever more seldom up to one in 30 s.
        """
        async with Listener(self._home) as bell:
            before: Inventory | None = None
            while True:
                self._asked.clear()
                inventory = await self._look(context)
                self._failures = self._failures + 1 if inventory.error else 0
                is_calm = before is not None and inventory.tells_same_as(before) and not inventory.is_moving
                self._calm_looks = self._calm_looks + 1 if is_calm else 0
                before = inventory
                yield inventory
                await self._pause(bell)

    @property
    def pause_s(self) -> float:
        """Seconds until the next look when nothing happens."""
        every_s = self._looking_s if self._is_looked_at else AWAY_EVERY_S
        return min(_LONGEST_PAUSE_S, every_s * 2.0 ** min(self._failures, 6))

    @property
    def _looking_s(self) -> float:
        if self._calm_looks >= _STILL_AFTER_LOOKS:
            return STILL_EVERY_S
        return CALM_EVERY_S if self._calm_looks >= _CALM_AFTER_LOOKS else LOOKING_EVERY_S

    async def _look(self, context: Context) -> Inventory:
        try:
            async with asyncio.timeout(_LOOK_DEADLINE_S):
                return await self._inventories.live(context)
        except TimeoutError:
            error = ControlUnavailable(
                f"the control plane of context `{context.name}` did not answer within {_LOOK_DEADLINE_S:.0f} s",
                hint="check the network, or `sbx doctor`",
            )
            seen = await asyncio.to_thread(self._inventories.cached, context)
            return Inventory(context, seen.sandboxes, seen.seen_at, error)

    async def _pause(self, bell: Listener) -> None:
        """Wait until it is time, somebody asks, or the store changed; a failing control plane is not rung awake."""
        began = asyncio.get_running_loop().time()
        wakers: set[asyncio.Future[bool]] = {asyncio.ensure_future(self._asked.wait())}
        if not self._failures:
            wakers.add(asyncio.ensure_future(bell.wait()))
        try:
            await asyncio.wait(wakers, timeout=self.pause_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for waker in wakers:
                waker.cancel()
            await asyncio.gather(*wakers, return_exceptions=True)
        if not self._asked.is_set():
            waited_s = asyncio.get_running_loop().time() - began
            await asyncio.sleep(max(0.0, _SHORTEST_PAUSE_S - waited_s))
