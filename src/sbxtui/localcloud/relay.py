"""Moving bytes between a client and a sandbox: never a whole body in memory, back-pressure from the slower side."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from sbxtui.core.bodies import Framing
from sbxtui.core.heads import MAX_HEAD_BYTES, BadMessage
from sbxtui.localcloud.duplex import CHUNK_BYTES

WRITE_BUFFER_BYTES = 1_048_576


class Sink(Protocol):
    """Where bytes go: a StreamWriter, or something before one."""

    def write(self, data: bytes) -> None:
        """As a StreamWriter's."""
        ...

    async def drain(self) -> None:
        """As a StreamWriter's."""
        ...


class EndedSink(Sink, Protocol):
    """One that must be told when there is no more."""

    def finish(self) -> None:
        """Write what was held back."""
        ...


class Cut(Exception):
    """A side went away in the middle of a message."""


class Reader(Protocol):
    """Where bytes come from: a connection, or a half of one."""

    async def read(self, most: int = CHUNK_BYTES, /) -> bytes:
        """Some bytes, or none at the end."""
        ...


class Source:
    """A reader that can give back what it read too much. Every wait may be cancelled without losing a byte."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._rest = b""

    @property
    def has_more(self) -> bool:
        """Whether bytes were read that nobody took."""
        return bool(self._rest)

    async def read(self, most: int = CHUNK_BYTES) -> bytes:
        """Some bytes, or none at the end."""
        if self._rest:
            taken, self._rest = self._rest[:most], self._rest[most:]
            return taken
        return await self._reader.read(most)

    def give_back(self, data: bytes) -> None:
        """Have `data` read again before anything else."""
        self._rest = data + self._rest

    async def read_head(self) -> bytes | None:
        """A message's head with its empty line, or None when the other side ended before it began.

        Raises:
            BadMessage: It is too long.
            Cut: It ended in the middle.
        """
        searched = 0
        while True:
            if searched == 0:
                # An empty line before a request is allowed for old clients, and none of ours.
                self._rest = self._rest.removeprefix(b"\r\n")
            end = self._rest.find(b"\r\n\r\n", max(0, searched - 3))
            if end >= 0:
                head, self._rest = self._rest[: end + 4], self._rest[end + 4 :]
                return head
            if len(self._rest) > MAX_HEAD_BYTES:
                raise BadMessage(431, "the head is too long")
            searched = len(self._rest)
            data = await self._reader.read(MAX_HEAD_BYTES)
            if not data:
                if self._rest:
                    raise Cut("the head ended in the middle")
                return None
            self._rest += data

    async def wait_end(self) -> None:
        """Return when the other side closes; bytes of a next message are kept, up to one head's worth."""
        while len(self._rest) <= MAX_HEAD_BYTES:
            data = await self._reader.read(MAX_HEAD_BYTES)
            if not data:
                return
            self._rest += data
        await asyncio.get_running_loop().create_future()


async def relay_body(source: Source, sink: Sink, framing: Framing, touch: Callable[[], None]) -> None:
    """Pass a whole body on; what follows it stays in `source`.

    Raises:
        Cut: The source ended before the body did.
        BadMessage: The framing is broken.
        OSError: The sink is gone.
    """
    while not framing.is_done:
        data = await source.read(min(framing.wants, CHUNK_BYTES) or CHUNK_BYTES)
        if not data:
            raise Cut("the body ended in the middle")
        taken = framing.feed(data)
        if taken < len(data):
            source.give_back(data[taken:])
            data = data[:taken]
        touch()
        await write_to(sink, data)


async def relay_until_end(source: Source, send: Callable[[bytes], Awaitable[None]], touch: Callable[[], None]) -> None:
    """Pass everything on until the source ends.

    Raises:
        OSError: A side is gone.
    """
    while data := await source.read():
        touch()
        await send(data)


async def write_to(writer: Sink, data: bytes) -> None:
    """Write all of it, at the other side's pace.

    Raises:
        OSError: It is gone.
    """
    writer.write(data)
    await writer.drain()
