"""The server's side of a connection: uvicorn's, but for the way of large request bodies."""

from __future__ import annotations

import asyncio
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from sbxguest.largebody import LARGE, LARGE_BYTES, LargeBody, length_of

_READ_BYTES = 256 * 1024
# Of all connections: what was read into it is passed on before anybody reads again.
_read = bytearray(_READ_BYTES)


class HttpSocket(HttpToolsProtocol, asyncio.BufferedProtocol):
    """uvicorn's; a handler finds a large body of known length among the extensions of its scope.

    Its bytes go past the parser, which is done with the head by then; the next request gets a new one.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._large: LargeBody | None = None

    def on_headers_complete(self) -> None:
        """Of httptools."""
        super().on_headers_complete()
        # Not of a request that waits for the answer before it, nor where the client waits to be asked for it.
        is_plain = not (self.pipeline or self.expect_100_continue or self.parser.should_upgrade())
        size_bytes = length_of(dict(self.headers).get(b"content-length", b"").decode("ascii"))
        if is_plain and size_bytes >= LARGE_BYTES:
            self._large = LargeBody(size_bytes, self.flow.pause_reading, self.flow.resume_reading)
            self.scope["extensions"] = {LARGE: self._large}  # type: ignore[dict-item]  # servers may add their own

    def on_body(self, body: bytes) -> None:
        """Of httptools."""
        if self._large is None:
            super().on_body(body)
        else:
            self._large.take(body)

    def on_message_complete(self) -> None:
        """Of httptools."""
        self._large = None
        super().on_message_complete()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Of asyncio."""
        return memoryview(_read) if self._large is None else self._large.room()

    def buffer_updated(self, nbytes: int) -> None:
        """Of asyncio."""
        if self._large is None:
            # The parser copies what it keeps.
            self.data_received(memoryview(_read)[:nbytes])  # type: ignore[arg-type]  # it takes all that lies in memory
            return
        self._large.filled(nbytes)
        if not self._large.left_bytes:
            self._renew_parser()
            self.on_message_complete()

    def _renew_parser(self) -> None:
        """As uvicorn makes it. The one before waits for bytes it will not see."""
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)

    def connection_lost(self, exc: Exception | None) -> None:
        """Of asyncio."""
        if self._large is not None:
            self._large.cut()
        super().connection_lost(exc)
