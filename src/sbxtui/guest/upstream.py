"""One connection to a sandbox's endpoint: it carries requests of others, one at a time, and reads heads only."""

from __future__ import annotations

import asyncio
from typing import Protocol, cast

from sbxtui.core.bodies import Framing, framing_of
from sbxtui.core.heads import MAX_HEAD_BYTES, BadMessage, ResponseHead, parse_response
from sbxtui.core.remembered import Remembered

_UNSENT_BYTES = 256 * 1024


class Reader(Protocol):
    """Who gets an answer, as it comes."""

    def on_head(self, response: ResponseHead) -> None:
        """The head of an interim or the real answer."""

    def on_body(self, data: bytes) -> None:
        """A part of the body, in its framing."""

    def on_end(self) -> None:
        """The answer is whole."""

    def on_break(self, why: str) -> None:
        """The connection broke, or what came is no HTTP; nothing more comes."""

    def flush(self) -> None:
        """That was all that is here."""

    def pause_writing(self) -> None:
        """What is written waits: write no more for now."""

    def resume_writing(self) -> None:
        """Go on."""


class Upstream(asyncio.Protocol):
    """A connection. Give it to a reader with `begin`, write the request with `write`.

    Attributes:
        used_at_s: When its last answer ended, by the loop's clock.
        answered: How many answers it has brought.
    """

    def __init__(self) -> None:
        self.used_at_s = 0.0
        self.answered = 0
        self._transport: asyncio.Transport | None = None
        self._reader: Reader | None = None
        self._method = b""
        self._parse = Remembered(parse_response)
        self._wants_upgrade = False
        self._held = b""
        self._body: Framing | None = None
        self._is_raw = False
        self._ends_with_close = False
        self._is_kept = True

    @property
    def is_reusable(self) -> bool:
        """Whether another request may go over it."""
        transport = self._transport
        return transport is not None and not transport.is_closing() and self._is_kept and not self._held

    def begin(self, reader: Reader, method: bytes, *, wants_upgrade: bool) -> None:
        """The next answer is this reader's."""
        self._reader, self._method, self._wants_upgrade = reader, method, wants_upgrade
        self._body, self._ends_with_close = None, False

    def write(self, data: bytes) -> None:
        """Bytes of a request."""
        if self._transport is not None:
            self._transport.write(data)

    def finish(self) -> None:
        """End it once all that was written has gone out."""
        self._reader = None
        if self._transport is not None:
            self._transport.close()

    def pause(self) -> None:
        """Read no further for now."""
        if self._transport is not None:
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read on."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def release(self) -> None:
        """The reader wants nothing more."""
        self._reader = None

    def close(self) -> None:
        """End it at once."""
        self._reader = None
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Of asyncio."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=_UNSENT_BYTES)

    def data_received(self, data: bytes) -> None:
        """Of asyncio."""
        reader = self._reader
        if reader is None:
            # An answer that nobody asked for must not become the next one's.
            self.close()
            return
        try:
            self._take(reader, data)
        except BadMessage as exc:
            self._broken(exc.why)
            return
        reader.flush()

    def _take(self, reader: Reader, data: bytes) -> None:
        if self._is_raw:
            reader.on_body(data)
            return
        if self._body is None:
            data, self._held = self._held + data, b""
        while data:
            if self._body is None:
                data = self._take_head(reader, data)
                if self._held:
                    return
            elif self._is_raw:
                reader.on_body(data)
                return
            else:
                taken = self._body.feed(data)
                if taken:
                    reader.on_body(data if taken == len(data) else data[:taken])
                data = data[taken:]
            if self._body is not None and self._body.is_done and not self._is_raw:
                self._end(reader, data)
                return

    def _take_head(self, reader: Reader, data: bytes) -> bytes:
        """Hand a head on, and return what follows; one that is not whole is held."""
        end = data.find(b"\r\n\r\n")
        if (len(data) if end < 0 else end) > MAX_HEAD_BYTES:
            raise BadMessage(502, "the head of the answer is too long")
        if end < 0:
            self._held = data
            return b""
        response = self._parse(data[: end + 4], self._method)
        if response.status == 101 and not self._wants_upgrade:
            raise BadMessage(502, "the server switched protocols unasked")
        if not response.is_interim:
            self._is_raw = response.status == 101
            self._is_kept = response.is_keep_alive and not self._is_raw
            self._ends_with_close = response.framing == "close"
            self._body = framing_of("close" if self._is_raw else response.framing)
        reader.on_head(response)
        return data[end + 4 :]

    def _end(self, reader: Reader, left: bytes) -> None:
        # What follows an answer is none of this request's: the connection is of no further use.
        self._held = left
        self.answered += 1
        self.used_at_s = asyncio.get_running_loop().time()
        reader.on_end()

    def _broken(self, why: str) -> None:
        reader, self._reader = self._reader, None
        self._is_kept = False
        if self._transport is not None:
            self._transport.abort()
        if reader is not None:
            reader.on_break(why)

    def eof_received(self) -> bool:
        """Of asyncio."""
        reader = self._reader
        if reader is not None and self._ends_with_close:
            self._ends_with_close = False
            self._is_kept = False
            reader.on_end()
            reader.flush()
        elif reader is not None and self._is_raw:
            self._reader = None
            reader.on_end()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Of asyncio."""
        self._transport = None
        self._broken(str(exc) if exc else "the other side closed the connection")

    def pause_writing(self) -> None:
        """Of asyncio."""
        if self._reader is not None:
            self._reader.pause_writing()

    def resume_writing(self) -> None:
        """Of asyncio."""
        if self._reader is not None:
            self._reader.resume_writing()
