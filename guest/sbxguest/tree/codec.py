"""Streams made smaller on the way, where the way is slow: deflate, which every Python has, at its fastest."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator

from sbxguest.tree.entry import BadRecord

DEFLATE = "deflate"
CODECS = (DEFLATE,)
# Says what the body of a request is packed with.
CODEC_HEADER = "x-sbx-codec"
_LEVEL = 1
_MAX_PIECE_BYTES = 1024 * 1024


class Packer:
    """Packs one stream."""

    def __init__(self) -> None:
        self._deflate = zlib.compressobj(_LEVEL)

    def feed(self, piece: bytes) -> bytes:
        """What is due after one more piece; perhaps nothing."""
        return self._deflate.compress(piece)

    def end(self) -> bytes:
        """What is left."""
        return self._deflate.flush()


class Opener:
    """Unpacks one stream, in pieces that are never large whatever came in."""

    def __init__(self) -> None:
        self._inflate = zlib.decompressobj()

    def open(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """What the next bytes hold.

        Raises:
            BadRecord: They are no such stream.
        """
        for chunk in chunks:
            yield from self._feed(chunk)

    def _feed(self, data: bytes) -> Iterator[bytes]:
        while data:
            if self._inflate.eof:
                raise BadRecord("something came behind the end of a packed stream")
            try:
                piece = self._inflate.decompress(data, _MAX_PIECE_BYTES)
            except zlib.error as exc:
                raise BadRecord("a packed stream is damaged") from exc
            data = self._inflate.unconsumed_tail or self._inflate.unused_data
            if piece:
                yield piece
