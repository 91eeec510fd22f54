"""The bodies of what a folder of a sandbox is asked: operations with their contents, and what is packed on the way."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from sbxguest.tree import Op
from sbxguest.tree.codec import ZEROS, ZSTD, Packer, counted_zeros
from sbxguest.tree.frames import BatchWriter, data_frames
from sbxtui.guest.http1 import let_go

_SEND_BYTES = 256 * 1024
# Less than 50 Mbit/s; and what of it is enough to know.
_SLOW_BYTES_PER_S = 50e6 / 8
_TOLD_BYTES = 512 * 1024


@dataclass(frozen=True, slots=True)
class Step:
    """An operation and, for an inline `PUT`, its content: at most `PACKED_BYTES` as bytes, more in pieces."""

    op: Op
    content: bytes | AsyncIterable[bytes] = field(default=b"", repr=False)


async def nothing() -> AsyncGenerator[bytes, None]:
    """A body that is empty."""
    no_pieces: tuple[bytes, ...] = ()
    for piece in no_pieces:
        yield piece


async def packed(pieces: AsyncIterable[bytes], codec: str) -> AsyncGenerator[bytes, None]:
    """A body as a codec of `sbxguest.tree.codec` has it."""
    packer = None if codec == ZEROS else Packer()
    gauge = _Gauge()
    try:
        async for piece in pieces:
            told = piece if codec == ZSTD else counted_zeros(piece)
            if packer is not None:
                told = await asyncio.to_thread(packer.feed, told)
            with gauge.timing(told):
                yield told
            if packer is not None and gauge.is_slow:
                yield packer.try_harder()
        if packer is not None:
            yield packer.end()
    finally:
        await let_go(pieces)


class _Gauge:
    """How fast what is sent is taken."""

    def __init__(self) -> None:
        self._sent_bytes, self._took_s = 0, 0.0

    @contextmanager
    def timing(self, piece: bytes) -> Iterator[None]:
        """The block ends when a piece is taken."""
        began_s = time.monotonic()
        yield
        self._took_s += time.monotonic() - began_s
        self._sent_bytes += len(piece)

    @property
    def is_slow(self) -> bool:
        """Whether packing closer takes less time than what it saves would on the way."""
        return self._sent_bytes > _TOLD_BYTES and self._sent_bytes < _SLOW_BYTES_PER_S * self._took_s


async def batch_body(steps: Iterable[Step] | AsyncIterable[Step]) -> AsyncGenerator[bytes, None]:
    """The frames of a batch, gathered into pieces worth a system call."""
    writer = BatchWriter()
    held = bytearray()
    async for step in each(steps):
        if isinstance(step.content, bytes):
            held += writer.op(step.op, step.content)
        else:
            held += writer.op(step.op)
            offset = 0
            async for piece in step.content:
                for frame in data_frames(offset, piece):
                    held += frame
                    if len(held) >= _SEND_BYTES:
                        yield bytes(held)
                        held.clear()
                offset += len(piece)
        if len(held) >= _SEND_BYTES:
            yield bytes(held)
            held.clear()
    yield bytes(held) + writer.end()


async def each(steps: Iterable[Step] | AsyncIterable[Step]) -> AsyncIterator[Step]:
    """The steps one after the other, whichever way they come."""
    if isinstance(steps, AsyncIterable):
        async for step in steps:
            yield step
        return
    for step in steps:
        yield step
