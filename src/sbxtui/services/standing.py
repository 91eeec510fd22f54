"""Standing orders: links on which the runner acts now and then, until nobody wants them any more."""

from __future__ import annotations

import asyncio

from sbxtui.store.doorbell import Listener
from sbxtui.store.links import Link, Links, Wanted


async def is_wanted(links: Links, link: Link) -> bool:
    """Whether this very link is still to be acted on; one that was made anew since is another."""
    found = await asyncio.to_thread(links.find, link.context, link.kind, link.sandbox_id)
    return found is not None and found.wanted is Wanted.RUNNING and found.made_at == link.made_at


async def rest(links: Links, link: Link, bell: Listener, pause_s: float) -> None:
    """Until the next look is due, or nobody wants it any more; what others change in the store is no reason."""
    loop = asyncio.get_running_loop()
    due_s = loop.time() + pause_s
    while (left_s := due_s - loop.time()) > 0 and await is_wanted(links, link):
        await bell.wait(left_s)
