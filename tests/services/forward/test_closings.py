"""Whoever stands between may end the tunnel's WebSocket as WebSockets are ended: connections through it go on."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from tests.support.forwarding import echo, forwarded, serving
from tests.support.guest_process import GuestProcess

LIMIT_S = 60
# What services say when they have enough, and what they say when they are started anew.
CODES = (1000, 1001, 1011, 1012)


class Gateway:
    """Passes messages on between a client and a guest, cut into fragments, and closes with the code it is told."""

    def __init__(self, guest_url: str) -> None:
        self._guest_url = guest_url.replace("http://", "ws://")
        self.connections: list[ServerConnection] = []

    async def serve(self, client: ServerConnection) -> None:
        assert client.request is not None
        self.connections.append(client)
        url = self._guest_url + client.request.path
        async with connect(url, ping_interval=None, proxy=None, compression=None, max_size=None) as guest:
            tasks = [asyncio.create_task(_pass(client, guest)), asyncio.create_task(_pass(guest, client))]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _pass(source: ServerConnection | ClientConnection, sink: ServerConnection | ClientConnection) -> None:
    with contextlib.suppress(ConnectionClosed):
        async for message in source:
            assert isinstance(message, bytes)
            await sink.send([message[:7], message[7:9], message[9:]])


@asynccontextmanager
async def gateway(guest: GuestProcess) -> AsyncIterator[tuple[Gateway, str]]:
    gate = Gateway(guest.url)
    async with serve(gate.serve, "127.0.0.1", 0, ping_interval=None, compression=None, max_size=None) as server:
        yield gate, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_a_close_of_any_kind_25_times_over_ends_no_connection_through_the_tunnel(guest: GuestProcess) -> None:
    async with (
        asyncio.timeout(LIMIT_S),
        serving(echo) as port,
        gateway(guest) as (gate, url),
        forwarded(url, port) as forward,
    ):
        reader, writer = await forward.connect()
        for at in range(25):
            writer.write(b"before %d\n" % at)
            assert await reader.readline() == b"before %d\n" % at
            await gate.connections[-1].close(CODES[at % len(CODES)])
            writer.write(b"after %d\n" % at)
            assert await reader.readline() == b"after %d\n" % at
        assert len(gate.connections) == 26
        writer.close()
