"""Going on with an upload that was cut off, as the host does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from sbxguest.tree.entry import new_digest
from sbxtui.core.errors import Conflict
from sbxtui.guest.tree import GuestTree
from sbxtui.guest.treewire import BlobState


async def in_pieces(content: bytes, size_bytes: int = 100_000) -> AsyncIterator[bytes]:
    """A content in pieces of a size."""
    for start in range(0, len(content), size_bytes):
        yield content[start : start + size_bytes]


async def resumed_upload(tree: GuestTree, content: bytes, *, name: bytes = b"") -> int:
    """Bring the rest of a content up once some of it is there, under a name if it has one; returns how much was."""
    digest = name or new_digest(content).digest()

    async def rest(offset: int) -> AsyncIterator[bytes]:
        yield content[offset:]

    async with asyncio.timeout(30):
        while True:
            have = await tree.blob(digest)
            # What was sent before the cut may still be on its way to the disk.
            if have.offset:
                try:
                    size_bytes = len(content)
                    done = await tree.upload_blob(
                        digest,
                        rest(have.offset),
                        offset=have.offset,
                        size_bytes=size_bytes,
                        is_provisional=bool(name),
                    )
                except Conflict:
                    continue
                assert done == BlobState(size_bytes, True)
                return have.offset
            await asyncio.sleep(0.02)
