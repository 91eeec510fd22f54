"""A client's connection to an endpoint: what it has sent waits here until somebody takes it, at once or in a task."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, cast

from sbxtui.localcloud.duplex import CHUNK_BYTES, abort
from sbxtui.localcloud.relay import WRITE_BUFFER_BYTES

_HELD_BYTES = 2 * CHUNK_BYTES


class Watcher(Protocol):
    """Who wants to hear of a client at once, without a task that waits."""

    def on_data(self) -> None:
        """It has sent something, which is in `held` now."""
        ...

    def on_gone(self) -> None:
        """Nothing more comes from it."""
        ...

    def on_eased(self) -> None:
        """It takes bytes again."""
        ...


class ClientStream(asyncio.Protocol):
    """A reader and a writer in one.

    Args:
        connected: Called with it once it is there.

    Attributes:
        held: What was sent and nobody took yet.
        is_slow: More was written than it takes for now.
        watcher: Is told of what happens, and nobody reads meanwhile.
    """

    def __init__(self, connected: Callable[[ClientStream], None]) -> None:
        self.transport: asyncio.Transport
        self.held = b""
        self.is_slow = False
        self.watcher: Watcher | None = None
        self._connected = connected
        self._loop = asyncio.get_running_loop()
        self._is_ended = False
        self._is_held_back = False
        self._is_lost = False
        self._error: Exception | None = None
        self._reading: asyncio.Future[None] | None = None
        self._writing: set[asyncio.Future[None]] = set()

    @property
    def is_gone(self) -> bool:
        """Whether nothing more comes from it."""
        return self._is_ended

    # A task's side.

    async def read(self, most: int = CHUNK_BYTES) -> bytes:
        """Some bytes, or none at the end. May be cancelled without losing a byte; one task reads at a time.

        Raises:
            OSError: The connection broke; everything that came before was read.
        """
        while not self.held:
            if self._error is not None:
                raise self._error
            if self._is_ended:
                return b""
            self._reading = self._loop.create_future()
            try:
                await self._reading
            finally:
                self._reading = None
        taken = self.held[:most]
        self.take(len(taken))
        return taken

    def take(self, count: int) -> None:
        """So many bytes of what is held are somebody's now."""
        self.held = self.held[count:]
        if self._is_held_back and len(self.held) <= CHUNK_BYTES:
            self._is_held_back = False
            if not self.transport.is_closing():
                self.transport.resume_reading()

    def write(self, data: bytes) -> None:
        """As a StreamWriter's."""
        self.transport.write(data)

    async def drain(self) -> None:
        """As a StreamWriter's.

        Raises:
            OSError: The client is gone.
        """
        if self._error is not None:
            raise self._error
        if self.transport.is_closing():
            # What closes it is told in the next turn.
            await asyncio.sleep(0)
        if self._is_lost:
            raise ConnectionResetError("the client is gone")
        if not self.is_slow:
            return
        writing = self._loop.create_future()
        self._writing.add(writing)
        try:
            await writing
        finally:
            self._writing.discard(writing)

    def close(self) -> None:
        """End it when all that was written is sent."""
        self.transport.close()

    def abort(self) -> None:
        """End it at once."""
        abort(self.transport)

    # The transport's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Of asyncio."""
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self._connected(self)

    def data_received(self, data: bytes) -> None:
        """Of asyncio."""
        self.held = self.held + data if self.held else data
        if len(self.held) > _HELD_BYTES and not self._is_held_back:
            self._is_held_back = True
            self.transport.pause_reading()
        if self.watcher is not None:
            self.watcher.on_data()
        else:
            self._wake_reader()

    def eof_received(self) -> None:
        """Of asyncio."""
        self._end()

    def connection_lost(self, exc: Exception | None) -> None:
        """Of asyncio."""
        self._error = exc
        self._is_lost = True
        for writing in self._writing:
            if not writing.done():
                writing.set_exception(exc or ConnectionResetError("the client is gone"))
        self._end()

    def pause_writing(self) -> None:
        """Of asyncio."""
        self.is_slow = True

    def resume_writing(self) -> None:
        """Of asyncio."""
        self.is_slow = False
        for writing in self._writing:
            if not writing.done():
                writing.set_result(None)
        if self.watcher is not None:
            self.watcher.on_eased()

    def _end(self) -> None:
        self._is_ended = True
        if self.watcher is not None:
            self.watcher.on_gone()
        self._wake_reader()

    def _wake_reader(self) -> None:
        if self._reading is not None and not self._reading.done():
            self._reading.set_result(None)
