"""TLS over a connection whose two directions fail apart: an early answer is read to its end, as without TLS."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from functools import cache

from sbxtui.localcloud.duplex import CHUNK_BYTES, TwoWay


class TlsDuplex:
    """The client's side, after a handshake that checked who answers. Same rules as `Duplex`; it owns the one given."""

    def __init__(self, duplex: TwoWay, context: ssl.SSLContext, host: str) -> None:
        self._duplex = duplex
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_hostname=host)
        # Reading may have to answer, as to a new key; pieces of two tasks must not mix.
        self._sending = asyncio.Lock()

    async def handshake(self) -> None:
        """Do it; the caller sets the deadline.

        Raises:
            ssl.SSLError: It is not who it should be, or speaks no TLS of today.
            OSError: The connection broke.
        """
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._flush()
                await self._take()
                continue
            except ssl.SSLError:
                with contextlib.suppress(OSError):
                    await self._flush()
                raise
            await self._flush()
            return

    @property
    def is_quiet(self) -> bool:
        """Never: it carries one request."""
        return False

    async def read(self, most: int = CHUNK_BYTES) -> bytes:
        """Some bytes, or none at the end.

        Raises:
            OSError: It was broken off; also when it ended without TLS's own end, for that may be somebody's cut.
        """
        while True:
            try:
                return self._tls.read(most)
            except ssl.SSLWantReadError:
                await self._flush()
                await self._take()
            except ssl.SSLZeroReturnError:
                return b""

    async def send(self, data: bytes) -> None:
        """Send all of it, at the other side's pace.

        Raises:
            OSError: The other side reads no more.
        """
        left = memoryview(data)
        while left:
            left = left[self._tls.write(left[:CHUNK_BYTES]) :]
            await self._flush()

    def end(self) -> None:
        """Nothing: requests say themselves where they end, and many servers take TLS's end for a hang-up."""

    def close(self) -> None:
        """Close it at once."""
        self._duplex.close()

    async def _take(self) -> None:
        if data := await self._duplex.read():
            self._in.write(data)
        else:
            self._in.write_eof()

    async def _flush(self) -> None:
        async with self._sending:
            while data := self._out.read():
                await self._duplex.send(data)


def tls_words(exc: OSError | TimeoutError) -> str:
    """What went wrong, as people say it."""
    if isinstance(exc, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({exc.verify_message})"
    if isinstance(exc, TimeoutError):
        return "no answer in time"
    return (exc.reason if isinstance(exc, ssl.SSLError) else exc.strerror) or type(exc).__name__


@cache
def system_trust() -> ssl.SSLContext:
    """The authorities of the system or of SSL_CERT_FILE; a bare system has none, then those that come with boto3."""
    context = ssl.create_default_context()
    if not context.cert_store_stats()["x509_ca"]:
        import certifi

        context.load_verify_locations(certifi.where())
    context.set_alpn_protocols(["http/1.1"])
    return context
