"""A server for probes of HTTP: each path answers in its own odd way, written byte by byte. WebSockets are real ones."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from websockets.asyncio.server import ServerConnection, serve
from websockets.typing import Subprotocol

from tests.support.forwarding import serving

BLOCK = bytes(range(256)) * 256
BLOCKS = 128
ZIPPED = gzip.compress(b"a page " * 1000)


@dataclass
class Asked:
    """One request as it arrived: `head` are its lines; `reader` has what follows."""

    head: list[bytes]
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @property
    def target(self) -> bytes:
        """As the request line has it."""
        return self.head[0].split(b" ")[1]

    def values(self, name: bytes) -> list[bytes]:
        """Of a field, by lower-case name."""
        pairs = (line.partition(b":") for line in self.head[1:])
        return [value.strip() for key, _, value in pairs if key.lower() == name]

    async def body(self) -> tuple[bytes, bytes]:
        """The digest of the body, and its trailer lines."""
        digest = hashlib.sha256()
        if lengths := self.values(b"content-length"):
            left = int(lengths[0])
            while left:
                data = await self.reader.read(min(left, 1 << 18))
                if not data:
                    raise asyncio.IncompleteReadError(b"", left)
                left -= len(data)
                digest.update(data)
        elif self.values(b"transfer-encoding"):
            while size := int((await self.reader.readline()).split(b";")[0], 16):
                digest.update(await self.reader.readexactly(size))
                await self.reader.readexactly(2)
            trailers = b""
            while (line := await self.reader.readline()) != b"\r\n":
                trailers += line
            return digest.digest(), trailers
        return digest.digest(), b""


@dataclass
class Origin:
    """The server; `port` and `ws_port` are where it and its WebSockets are, `gone` gets the path of each request whose
    client went away.
    """

    port: int = 0
    ws_port: int = 0
    gone: asyncio.Queue[bytes] = field(default_factory=asyncio.Queue)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer requests, one after another."""
        while True:
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError:
                return
            asked = Asked(head[:-4].split(b"\r\n"), reader, writer)
            name = asked.target.split(b"?")[0]
            answer = ANSWERS.get(name, _plain)
            with contextlib.suppress(ConnectionError):
                await answer(self, asked)
                await writer.drain()
            if writer.is_closing() or asked.values(b"connection") == [b"close"]:
                return

    async def until_gone(self, asked: Asked) -> None:
        """Wait for the client's end, and tell it."""
        with contextlib.suppress(ConnectionError):
            await asked.reader.read()
        self.gone.put_nowait(asked.target)
        asked.writer.close()


Answer = Callable[[Origin, Asked], Awaitable[None]]


def ok(body: bytes, *fields: bytes) -> bytes:
    """A plain answer."""
    return b"\r\n".join((b"HTTP/1.1 200 OK", b"Content-Length: %d" % len(body), *fields, b"", body))


async def _plain(origin: Origin, asked: Asked) -> None:
    """What came, told back: the request line, then the head."""
    await asked.body()
    asked.writer.write(ok(b"\n".join(asked.head)))


def fixed(answer: bytes) -> Answer:
    """An answer that is always the same."""

    async def give(origin: Origin, asked: Asked) -> None:
        asked.writer.write(answer)

    return give


def final(answer: bytes) -> Answer:
    """The same, and the connection ends."""

    async def give(origin: Origin, asked: Asked) -> None:
        asked.writer.write(answer)
        await asked.writer.drain()
        asked.writer.close()

    return give


async def _big(origin: Origin, asked: Asked) -> None:
    asked.writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (len(BLOCK) * BLOCKS))
    for _ in range(BLOCKS):
        asked.writer.write(BLOCK)
        await asked.writer.drain()


async def _digest(origin: Origin, asked: Asked) -> None:
    if asked.values(b"expect"):
        asked.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    digest, trailers = await asked.body()
    asked.writer.write(ok(digest + trailers))


async def _refuse_early(origin: Origin, asked: Asked) -> None:
    asked.writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nbig")
    await asked.writer.drain()
    with contextlib.suppress(ConnectionError):
        while await asked.reader.read(1 << 18):
            pass
    asked.writer.close()


async def _events(origin: Origin, asked: Asked) -> None:
    asked.writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
    await asked.writer.drain()
    # The head has arrived when this comes.
    await asyncio.sleep(0.05)
    asked.writer.write(b"9\r\ndata: 1\n\n\r\n")
    await origin.until_gone(asked)


async def _silent(origin: Origin, asked: Asked) -> None:
    await origin.until_gone(asked)


async def _elsewhere(origin: Origin, asked: Asked) -> None:
    """Send the browser to another page of the host it seems to be."""
    (host,) = asked.values(b"host")
    asked.writer.write(b"HTTP/1.1 302 Found\r\nLocation: http://%b/next?a=1\r\nContent-Length: 0\r\n\r\n" % host)


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
ANSWERS: dict[bytes, Answer] = {
    b"/204": fixed(b"HTTP/1.1 204 No Content\r\n\r\n"),
    b"/304": fixed(b'HTTP/1.1 304 Not Modified\r\nETag: "x"\r\nContent-Length: 900\r\n\r\n'),
    b"/chunked": fixed(CHUNKED + b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"),
    b"/trailers": fixed(CHUNKED + b"3\r\nabc\r\n0\r\nX-Sum: 6\r\n\r\n"),
    b"/extensions": fixed(CHUNKED + b"3;a=b\r\nabc\r\n0;z\r\n\r\n"),
    b"/until-close": final(b"HTTP/1.1 200 OK\r\n\r\nuntil the end"),
    b"/1.0": final(b"HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nold"),
    b"/empty": fixed(ok(b"")),
    b"/cookies": fixed(ok(b"", b"Set-Cookie: a=1; Path=/", b"Set-Cookie: b=2; Expires=Wed, 09 Jun 2032 10:18:14 GMT")),
    b"/odd-names": fixed(ok(b"", b"x-LOWER-Upper: 1", b"X-Empty:", b"X-Bytes: caf\xe9")),
    b"/gzip": fixed(ok(ZIPPED, b"Content-Encoding: gzip", b"Content-Type: text/html")),
    b"/hints": fixed(b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n" + ok(b"hinted")),
    b"/403": fixed(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno"),
    b"/head": fixed(b"HTTP/1.1 200 OK\r\nContent-Length: 12345\r\n\r\n"),
    b"/big": _big,
    b"/digest": _digest,
    b"/early": _refuse_early,
    b"/events": _events,
    b"/silent": _silent,
    b"/elsewhere": _elsewhere,
}


async def _echo(connection: ServerConnection) -> None:
    async for message in connection:
        if message == "leave":
            await connection.close(4001, "as you wish")
            return
        await connection.send(message)


def _choose(connection: ServerConnection, offered: Sequence[Subprotocol]) -> Subprotocol | None:
    return offered[-1] if offered else None


@asynccontextmanager
async def running_origin() -> AsyncIterator[Origin]:
    """The server, closed afterwards."""
    origin = Origin()
    sockets = serve(_echo, "127.0.0.1", 0, select_subprotocol=_choose, max_size=None)
    async with serving(origin.serve) as port, sockets as server:
        origin.port, origin.ws_port = port, next(iter(server.sockets)).getsockname()[1]
        yield origin
