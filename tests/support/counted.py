"""What passes on the way to a sandbox's endpoint, counted as it passes: bytes of TLS, which nobody here reads."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

_CHUNK_BYTES = 64 * 1024


@dataclass
class Count:
    """The bytes that passed on a way, in both directions. `endpoint` is where the way begins."""

    endpoint: str
    passed_bytes: int = 0
    _last_at: float = field(default_factory=time.monotonic)

    @property
    def silent_s(self) -> float:
        """For how many seconds nothing has passed."""
        return time.monotonic() - self._last_at

    def add(self, size_bytes: int) -> None:
        """So much passed."""
        self.passed_bytes += size_bytes
        self._last_at = time.monotonic()


@asynccontextmanager
async def counted_way(endpoint: str) -> AsyncIterator[Count]:
    """Another way to an endpoint (`host:port`), on which all is counted; closed with what goes through it."""
    host, _, port = endpoint.rpartition(":")

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(_CHUNK_BYTES):
            count.add(len(data))
            writer.write(data)
            await writer.drain()
        writer.close()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            far_reader, far_writer = await asyncio.open_connection(host, int(port))
            ways = [asyncio.create_task(copy(*one)) for one in ((reader, far_writer), (far_reader, writer))]
            try:
                await asyncio.gather(*ways)
            finally:
                for way in ways:
                    way.cancel()
                far_writer.close()
        writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    count = Count(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
    try:
        yield count
    finally:
        server.close()
