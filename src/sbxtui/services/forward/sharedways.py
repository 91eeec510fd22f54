"""One way of each kind per sandbox and process, however many ports are forwarded over it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from sbxtui.core.errors import SbxError
from sbxtui.core.model import Registration
from sbxtui.guest.tunnel import TunnelState
from sbxtui.services.forward.ways import Way

log = logging.getLogger(__name__)

OnState = Callable[[TunnelState, str], None]
# Makes a way that tells its states to the callback.
Make = Callable[[OnState], Awaitable[Way]]


@dataclass(slots=True)
class Shared:
    """A way in use.

    Attributes:
        run: Keeps it; ends with the error that no connection can be had any more for.
        users: How many use it.
        changed: Set at each new state.
    """

    way: Way
    run: asyncio.Task[None]
    users: int = 0
    reason: str = ""
    watchers: set[asyncio.Event] = field(default_factory=set)

    async def until_over(self) -> None:
        """Wait for the end that only an error brings.

        Raises:
            SbxError: Why no connection can be had any more.
        """
        await asyncio.wait([self.run])
        await self.run


class SharedWays:
    """The ways of this process."""

    def __init__(self) -> None:
        self._shared: dict[tuple[str, str, str], Shared] = {}
        self._lock = asyncio.Lock()

    @asynccontextmanager
    async def use(self, row: Registration, kind: str, make: Make) -> AsyncIterator[Shared]:
        """The way of a kind to a sandbox; it ends when nobody uses it.

        Args:
            row: The sandbox.
            kind: Names the kind.
            make: Makes the way if there is none.
        """
        key = (row.context, row.id, kind)
        async with self._lock:
            shared = self._shared.get(key)
            if shared is None or shared.run.done():
                shared = self._shared[key] = await _started(row.name, make)
            shared.users += 1
        try:
            yield shared
        finally:
            shared.users -= 1
            if not shared.users:
                if self._shared.get(key) is shared:
                    del self._shared[key]
                shared.run.cancel()
                await asyncio.gather(shared.run, return_exceptions=True)


async def _started(name: str, make: Make) -> Shared:
    def tell(state: TunnelState, reason: str) -> None:
        log.info("%s: %s%s", name, state.value, f": {reason}" if reason else "")
        shared.reason = reason
        for watcher in shared.watchers:
            watcher.set()

    way = await make(tell)
    shared = Shared(way, asyncio.create_task(_run(way)))
    return shared


async def _run(way: Way) -> None:
    try:
        await way.run()
    except SbxError as exc:
        log.info("the way ended: %s", exc.message)
        raise
