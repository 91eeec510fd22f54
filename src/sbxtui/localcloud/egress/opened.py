"""The program's side of a connection that is opened: TLS ends here, as the host that was asked for."""

from __future__ import annotations

import asyncio
import ssl

from sbxtui.localcloud.duplex import abort
from sbxtui.localcloud.egress.dialing import Streams

_CLOSE_S = 5.0


async def take_tls(writer: asyncio.StreamWriter, greeting: bytes, context: ssl.SSLContext, limit_s: float) -> Streams:
    """Send a greeting and be the server of the handshake that follows it.

    Raises:
        OSError: It fails, an ssl.SSLError among them, or takes too long.
    """
    loop = asyncio.get_running_loop()
    # Not read before TLS reads it: what the stream took would be lost to it.
    connection = writer.transport
    if not isinstance(connection, asyncio.Transport):
        raise TypeError("a connection is read and written")
    connection.pause_reading()
    writer.write(greeting)
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    transport = await loop.start_tls(connection, protocol, context, server_side=True, ssl_handshake_timeout=limit_s)
    if transport is None:
        raise ConnectionResetError("the program hung up")
    protocol.connection_made(transport)
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


async def closed(writer: asyncio.StreamWriter) -> None:
    """Close it, once what was written is on its way: TLS keeps some of it to itself for a moment."""
    writer.close()
    try:
        async with asyncio.timeout(_CLOSE_S):
            await writer.wait_closed()
    except (OSError, TimeoutError):
        abort(writer.transport)
