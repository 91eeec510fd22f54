"""The bodies of what a folder of a sandbox is asked: operations with their contents, and what is packed on the way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterable
from dataclasses import dataclass, field

from sbxguest.tree import Op
from sbxguest.tree.codec import DEFLATE, ZEROS, Packer, counted_zeros
from sbxguest.tree.frames import BatchWriter, data_frames

_SEND_BYTES = 256 * 1024


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
    try:
        async for piece in pieces:
            told = piece if codec == DEFLATE else counted_zeros(piece)
            yield told if packer is None else await asyncio.to_thread(packer.feed, told)
        if packer is not None:
            yield packer.end()
    finally:
        # What is sent no further shall let go of its file now, not when somebody collects it.
        if isinstance(pieces, AsyncGenerator):
            await pieces.aclose()


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
