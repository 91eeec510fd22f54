"""What a command waits for where its sandbox's folder is synced: that it finds what was saved before it began."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from sbxtui.core.errors import Incomplete
from sbxtui.core.model import Registration
from sbxtui.store.links import Links, Wanted

if TYPE_CHECKING:
    from sbxtui.services.sync.syncs import Syncs


async def flushed(links: Links, syncs: Callable[[], Syncs], row: Registration) -> str:
    """Carry over what was saved in a folder whose sync runs; returns what could not be, in words.

    `syncs` is asked for only where there is one: most commands need none of its code.

    Raises:
        SbxError: Nothing can be carried over now.
    """
    link = await asyncio.to_thread(links.find, row.context, "sync", row.id)
    if link is None or not (link.is_served or link.is_detached) or link.wanted is not Wanted.RUNNING:
        return ""
    try:
        await syncs().flush(row)
    except Incomplete as exc:
        return exc.message
    return ""
