"""`python -m bench.relay PORT DELAY_S [BYTES_PER_S]`: a way to a port of this machine that is as long and thin as said.

It says the port it listens on. All connections share what passes each way.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys

_READ_BYTES = 1 << 16
# How late we may be at what already waited: a way would not have been idle for that.
_LATE_S = 0.02


class Way:
    """One direction: what comes leaves when what came before has left, and arrives so much later."""

    def __init__(self, delay_s: float, bytes_per_s: float) -> None:
        self._delay_s = delay_s
        self._bytes_per_s = bytes_per_s
        self._free_at_s = 0.0

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass on until the end."""
        loop = asyncio.get_running_loop()
        while data := await reader.read(_READ_BYTES):
            self._free_at_s = max(loop.time() - _LATE_S, self._free_at_s) + len(data) / self._bytes_per_s
            await asyncio.sleep(self._free_at_s - loop.time())
            loop.call_later(self._delay_s, writer.write, data)
        loop.call_later(self._delay_s, writer.close)


async def serve(port: int, delay_s: float, bytes_per_s: float) -> None:
    """Relay for ever."""
    up, down = Way(delay_s, bytes_per_s), Way(delay_s, bytes_per_s)

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            there = await asyncio.open_connection("127.0.0.1", port)
            await asyncio.gather(up.carry(reader, there[1]), down.carry(there[0], writer))

    server = await asyncio.start_server(one, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]) if len(sys.argv) > 3 else float("inf")))
