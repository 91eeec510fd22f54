"""Following the event log as it grows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from sbxtui.core.model import Event
from sbxtui.home import Home
from sbxtui.store.doorbell import LOOKING_POLL_S, Listener
from sbxtui.store.events import Events

_BATCH = 500


async def follow_events(
    home: Home, events: Events, *, after_seq: int, subject: str | None = None
) -> AsyncGenerator[list[Event], None]:
    """Batches of events after `after_seq`, in order, without a gap, for as long as somebody iterates."""
    async with Listener(home, poll_s=LOOKING_POLL_S) as listener:
        while True:
            while batch := await asyncio.to_thread(events.list, after_seq, limit=_BATCH, subject=subject):
                after_seq = batch[-1].seq
                yield batch
            await listener.wait()
