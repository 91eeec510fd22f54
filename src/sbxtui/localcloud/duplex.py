"""A connection whose two directions fail apart: what came can be read to its end when nothing can be sent any more.

A server may answer and close while its client still sends. asyncio's transports drop everything unread as soon as a
write fails, and with it such an answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import Protocol

CHUNK_BYTES = 262_144


def abort(transport: asyncio.WriteTransport) -> None:
    """Close a transport at once. Over TLS, Python 3.11.2 has forgotten what to abort after a second `close`."""
    with contextlib.suppress(AttributeError):
        transport.abort()


class TwoWay(Protocol):
    """What carries a request out and its answer back: the ways of `Duplex`, with or without TLS."""

    @property
    def is_quiet(self) -> bool:
        """See `Duplex`."""
        ...

    async def read(self, most: int = CHUNK_BYTES) -> bytes:
        """See `Duplex`."""
        ...

    async def send(self, data: bytes) -> None:
        """See `Duplex`."""
        ...

    def end(self) -> None:
        """See `Duplex`."""
        ...

    def close(self) -> None:
        """See `Duplex`."""
        ...


class Duplex:
    """A connected stream socket without a transport and without a buffer of its own; close it.

    At most one task reads and one sends at a time. Every wait may be cancelled: no byte that came is lost by it.
    """

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._loop = asyncio.get_running_loop()
        self._waiting: set[asyncio.Future[None]] = set()

    @property
    def is_quiet(self) -> bool:
        """Whether it is open, and nothing has come that nobody read."""
        try:
            self._sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def watch(self, on_readable: Callable[[], None]) -> None:
        """Have `on_readable` called as long as there is something to receive, or the end; nobody reads meanwhile."""
        self._loop.add_reader(self._sock, on_readable)

    def unwatch(self) -> None:
        """Call it no more."""
        if self._sock.fileno() >= 0:
            self._loop.remove_reader(self._sock)

    def receive_now(self, most: int) -> bytes | None:
        """What is there already, none at the end, and None where there is nothing yet.

        Raises:
            OSError: As `read`.
        """
        try:
            return self._sock.recv(most)
        except (BlockingIOError, InterruptedError):
            return None

    def send_now(self, data: bytes) -> int:
        """Send what the other side takes at once; how much that was.

        Raises:
            OSError: As `send`.
        """
        try:
            return self._sock.send(data)
        except (BlockingIOError, InterruptedError):
            return 0

    async def read(self, most: int = CHUNK_BYTES) -> bytes:
        """Some bytes, or none at the end.

        Raises:
            OSError: The other side broke it off, or it was closed here; everything that came before was read.
        """
        # Where there is always more, others have their turn all the same.
        await asyncio.sleep(0)
        while True:
            try:
                return self._sock.recv(most)
            except (BlockingIOError, InterruptedError):
                await self._ready(self._loop.add_reader, self._loop.remove_reader)

    async def send(self, data: bytes) -> None:
        """Send all of it, at the other side's pace.

        Raises:
            OSError: The other side reads no more, or it was closed here. What it said may still be read.
        """
        left = memoryview(data)
        while left:
            try:
                left = left[self._sock.send(left) :]
            except (BlockingIOError, InterruptedError):
                await self._ready(self._loop.add_writer, self._loop.remove_writer)

    def end(self) -> None:
        """Say that nothing more will be sent.

        Raises:
            OSError: It is broken already.
        """
        self._sock.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close it at once; whoever reads or sends finds it broken."""
        for future in self._waiting:
            _settle(future)
        if self._sock.fileno() >= 0:
            # Before its number may be another file's.
            self._loop.remove_reader(self._sock)
            self._loop.remove_writer(self._sock)
        self._sock.close()

    async def streams(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """The same as asyncio's pair, whose writer owns it from now on."""
        return await asyncio.open_connection(sock=self._sock)

    async def _ready(self, watch: Callable[..., None], unwatch: Callable[[socket.socket], object]) -> None:
        future = self._loop.create_future()
        self._waiting.add(future)
        watch(self._sock, _settle, future)
        try:
            await future
        finally:
            self._waiting.discard(future)
            if self._sock.fileno() >= 0:
                unwatch(self._sock)


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
