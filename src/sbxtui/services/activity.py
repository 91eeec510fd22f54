"""Writing changes into the event log, and following it as it grows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from time import monotonic

from sbxtui.core.errors import SbxError
from sbxtui.core.model import Event, Registration
from sbxtui.home import Home
from sbxtui.store.doorbell import LOOKING_POLL_S, Listener
from sbxtui.store.events import Events

_BATCH = 500


@asynccontextmanager
async def noted(
    events: Events,
    row: Registration,
    kind: str,
    actor: str,
    data: Mapping[str, object] | None = None,
    *,
    is_told: bool = False,
) -> AsyncIterator[None]:
    """Record a change as an event when it is over, with its duration; one that failed as `KIND.failed`, with why.

    Args:
        events: Where to.
        row: Of which sandbox.
        kind: What was changed.
        actor: Who did.
        data: More of it, JSON-safe.
        is_told: Whether the change itself writes an event, so that only a failure is to be recorded here.
    """

    async def record(ending: str, **more: object) -> None:
        facts = {**(data or {}), "took_s": round(monotonic() - began, 3), **more}
        await asyncio.to_thread(
            events.record, context=row.context, kind=kind + ending, subject=row.name, actor=actor, data=facts
        )

    began = monotonic()
    try:
        yield
    except SbxError as exc:
        with suppress(SbxError):
            await record(".failed", error=exc.message, code=exc.code)
        raise
    if not is_told:
        await record("")


async def follow_events(
    home: Home, events: Events, *, after_seq: int, subject: str | None = None, poll_s: float = LOOKING_POLL_S
) -> AsyncGenerator[list[Event], None]:
    """Batches of events after `after_seq`, in order, without a gap, for as long as somebody iterates.

    `poll_s` is how often the store is looked at where no bell rings.
    """
    async with Listener(home, poll_s=poll_s) as listener:
        while True:
            while batch := await asyncio.to_thread(events.list, after_seq, limit=_BATCH, subject=subject):
                after_seq = batch[-1].seq
                yield batch
            await listener.wait()
