"""A socket joined to a stream: bytes, ends of either direction and breaks go through as they are."""

from __future__ import annotations

import asyncio
from typing import cast

from sbxguest.mux import near
from sbxguest.mux.gather import Gatherer
from sbxguest.mux.mux import Mux
from sbxguest.mux.stream import Stream

# What goes to a socket at once; what it does not take is credited all the same.
_AT_ONCE_BYTES = 512 * 1024


def write_end(transport: asyncio.Transport) -> None:
    """End our direction of a socket. One whose peer has gone meanwhile is given up: nobody else would notice."""
    if transport.can_write_eof() and not transport.is_closing():
        try:
            transport.write_eof()
        except OSError:
            transport.abort()


class Pipe(asyncio.Protocol):
    """A `Sink` over a socket; `stream` is set when there is one.

    Args:
        mux: Of the stream.
        stream: None for one that is opened later.
    """

    def __init__(self, mux: Mux, stream: Stream | None = None) -> None:
        self.mux = mux
        self.stream = stream
        self.transport: asyncio.Transport | None = None
        self._gatherer: Gatherer | None = None
        self._may_write = True
        self._has_written_end = False
        self._is_paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Of asyncio."""
        self.transport = cast("asyncio.Transport", transport)
        self._gatherer = Gatherer(self.transport)
        near.tune(transport.get_extra_info("socket"))
        if self.stream is not None:
            self.mux.attach(self.stream, self)

    def data_received(self, data: bytes) -> None:
        """Of asyncio."""
        if self.stream is not None:
            self.send(self.stream, data)

    def eof_received(self) -> bool:
        """Of asyncio: the other direction may go on."""
        if self.stream is not None:
            self.mux.finish(self.stream)
            self._close_if_over()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """Of asyncio."""
        self.transport = None
        if self.stream is not None and not (self.stream.out.is_finished and self._has_written_end):
            self.mux.reset(self.stream)

    def pause_writing(self) -> None:
        """Of asyncio."""
        self._may_write = False

    def resume_writing(self) -> None:
        """Of asyncio."""
        self._may_write = True
        self.on_data()

    def send(self, stream: Stream, data: bytes) -> None:
        """Pass bytes of the socket on; reads no further than the other end lets us."""
        self.mux.write(stream, data)
        if stream.out.is_full and not self._is_paused and self.transport is not None:
            self._is_paused = True
            self.transport.pause_reading()

    def on_data(self) -> None:
        """Of `Sink`."""
        stream, transport = self.stream, self.transport
        if stream is None or transport is None:
            return
        while stream.incoming.inbox and self._may_write:
            self._write_some(stream, transport)
        if stream.incoming.is_ended and not self._has_written_end:
            self._has_written_end = True
            stream.incoming.pull_fin()
            write_end(transport)
        self.mux.took(stream)
        self._close_if_over()

    def _write_some(self, stream: Stream, transport: asyncio.Transport) -> None:
        incoming, piece = stream.incoming, stream.incoming.pull()
        if not incoming.inbox or self._gatherer is None:
            transport.write(piece)
            return
        parts, size = [piece], len(piece)
        while incoming.inbox and (size := size + len(incoming.inbox[0])) <= _AT_ONCE_BYTES:
            parts.append(incoming.pull())
        self._gatherer.write(parts)

    def on_credit(self) -> None:
        """Of `Sink`."""
        if self._is_paused and self.stream is not None and not self.stream.out.is_full and self.transport is not None:
            self._is_paused = False
            self.transport.resume_reading()

    def on_reset(self, code: str, message: str) -> None:
        """Of `Sink`."""
        if self.transport is not None:
            self.transport.abort()

    def _close_if_over(self) -> None:
        if self._has_written_end and self.stream is not None and self.stream.out.is_finished and self.transport:
            self.transport.close()
