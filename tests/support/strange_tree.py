"""A folder at the end of a connection at which no guest answers, but what a test says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from sbxguest.tree.entry import DIGEST_NAME
from sbxtui.guest.transport import Transport
from sbxtui.guest.tree import GuestTree

# What such a guest says of its folder.
HELLO = json.dumps(
    {"guest_id": "g", "epoch": "e", "root": "r", "feed": "", "codecs": [], "digest": DIGEST_NAME}
).encode()
_LIMIT_S = 30.0


async def _checked() -> None:
    pass


@asynccontextmanager
async def strange_tree(
    handle: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    *,
    is_far: bool = False,
) -> AsyncIterator[GuestTree]:
    """That folder; `handle` answers each connection. All of it has half a minute."""
    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, asyncio.timeout(_LIMIT_S), Transport(f"http://127.0.0.1:{port}", None) as transport:
        yield GuestTree(transport, "", _checked, is_far=is_far)
