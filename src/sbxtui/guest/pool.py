"""Connections to one address, a few of them, used again and again."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from sbxtui.core.values import dataclass
from sbxtui.guest.http1 import Answer, Body, Connection, HttpError, HttpTimeout, Patience, request_head

# The smallest sandbox takes eight connections in all, and forwards and dashboards want theirs.
_MAX_CONNECTIONS = 6
_MAX_IDLE = 4
_IDLE_S = 45.0
_WAIT_S = 30.0
_HAPPY_EYEBALLS_S = 0.25


@dataclass(frozen=True, slots=True)
class Address:
    """Where to connect: a host and port, with TLS if there is a context, or the socket at `path`."""

    host: str
    port: int
    authority: str
    tls: ssl.SSLContext | None = None
    path: str = ""


def address_of(endpoint: str, verify: ssl.SSLContext | bool) -> Address:
    """What an endpoint stands for: `host[:port]` over TLS, `http://host:port`, or `unix:/path`.

    Raises:
        HttpError: It stands for nothing.
    """
    if endpoint.startswith("unix:"):
        return Address("", 0, "guest", path=endpoint.removeprefix("unix:"))
    is_plain = endpoint.startswith("http://")
    try:
        parts = urlsplit(endpoint if is_plain else f"//{endpoint}")
        host, port = parts.hostname, parts.port
    except ValueError as exc:
        raise HttpError(f"no address: {exc}") from exc
    if not host:
        raise HttpError("no address: it names no host")
    tls = None if is_plain else _context(verify)
    return Address(host, port or (80 if is_plain else 443), parts.netloc, tls)


def _context(verify: ssl.SSLContext | bool) -> ssl.SSLContext:
    if isinstance(verify, ssl.SSLContext):
        return verify
    context = ssl.create_default_context()
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


class Pool:
    """Requests to one address over at most six connections.

    Args:
        address: Where to.
        revive: Called when nobody listens there, before that is told: it may start again whoever should.
    """

    def __init__(self, address: Address, revive: Callable[[], Awaitable[None]] | None = None) -> None:
        self._address = address
        self._revive = revive
        self._free = asyncio.Semaphore(_MAX_CONNECTIONS)
        self._idle: list[tuple[Connection, float]] = []
        self._is_closed = False

    async def close(self) -> None:
        """End every connection; one in use ends with its request."""
        self._is_closed = True
        while self._idle:
            await self._idle.pop()[0].close()

    @asynccontextmanager
    async def stream(
        self, method: str, target: str, headers: Mapping[str, str], body: Body, patience: Patience
    ) -> AsyncIterator[Answer]:
        """A request and its answer; leaving the block before the body's end ends the connection.

        Args:
            method: Of HTTP.
            target: Path and query, quoted.
            headers: Without `host`, `content-length` (unless the length of a streamed body is known) and the like.
            body: Bytes, or pieces that are asked for as they can be sent.
            patience: For every wait.

        Raises:
            HttpError: The connection broke, also inside the block. HttpTimeout: It took too long.
        """
        fields = {"host": self._address.authority, **headers}
        is_chunked = False
        if isinstance(body, bytes):
            fields["content-length"] = str(len(body))
        elif body is not None and "content-length" not in fields:
            is_chunked = True
            fields["transfer-encoding"] = "chunked"
        elif body is None and method in ("POST", "PUT"):
            fields["content-length"] = "0"
        head = request_head(method, target, fields)
        async with self._connection(patience) as connection:
            yield await connection.request(head, body, is_chunked=is_chunked, patience=patience)

    @asynccontextmanager
    async def _connection(self, patience: Patience) -> AsyncIterator[Connection]:
        try:
            async with asyncio.timeout(_WAIT_S):
                await self._free.acquire()
        except TimeoutError:
            raise HttpTimeout(f"all {_MAX_CONNECTIONS} connections are in use", was_sent=False) from None
        try:
            connection = await self._idle_one() or await self._connect(patience)
            try:
                yield connection
            finally:
                if connection.is_reusable and len(self._idle) < _MAX_IDLE and not self._is_closed:
                    self._idle.append((connection, asyncio.get_running_loop().time()))
                else:
                    await connection.close()
        finally:
            self._free.release()

    async def _idle_one(self) -> Connection | None:
        """The one that was used last, as it is the likeliest to live."""
        oldest_s = asyncio.get_running_loop().time() - _IDLE_S
        while self._idle:
            connection, since_s = self._idle.pop()
            if connection.is_reusable and since_s >= oldest_s:
                return connection
            await connection.close()
        return None

    async def _connect(self, patience: Patience) -> Connection:
        loop, address = asyncio.get_running_loop(), self._address
        try:
            async with asyncio.timeout(patience.connect_s):
                if address.path:
                    return (await loop.create_unix_connection(Connection, address.path))[1]
                made = await loop.create_connection(
                    Connection,
                    address.host,
                    address.port,
                    ssl=address.tls,
                    server_hostname=address.host if address.tls else None,
                    happy_eyeballs_delay=_HAPPY_EYEBALLS_S,
                )
                return made[1]
        except TimeoutError:
            raise HttpTimeout("no connection in time", was_sent=False) from None
        except (OSError, UnicodeError) as exc:
            if self._revive is not None and isinstance(exc, ConnectionRefusedError):
                await self._revive()
            raise HttpError(str(exc) or type(exc).__name__, was_sent=False) from exc
