"""Streams made smaller on the way: deflate at its fastest, which every Python has; and zeros, which are only counted.

A stream of zeros is, again and again, `u32` and that many bytes; with the highest bit set so many zeros are meant, and
nothing follows.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from sbxguest.tree.entry import BadRecord

DEFLATE, ZEROS = "deflate", "zeros"
# Zeros counted, and that packed: what is unpacked first is named last.
ZEROS_DEFLATE = f"{ZEROS}+{DEFLATE}"
CODECS = (DEFLATE, ZEROS, ZEROS_DEFLATE)
# Says what a body is packed with.
CODEC_HEADER = "x-sbx-codec"
# Says what the body of the answer may be packed with.
ACCEPT_HEADER = "x-sbx-accept-codec"
_LEVEL = 1
_MAX_PIECE_BYTES = 1024 * 1024
_RUN = struct.Struct(">I")
_ZEROS = 1 << 31
_NO_BYTES = bytes(_MAX_PIECE_BYTES)


class Packer:
    """Packs one stream."""

    def __init__(self) -> None:
        self._deflate = zlib.compressobj(_LEVEL)

    def feed(self, piece: bytes) -> bytes:
        """What is due after one more piece; perhaps nothing."""
        return self._deflate.compress(piece)

    def feed_now(self, piece: bytes) -> bytes:
        """The same with nothing held back."""
        return self._deflate.compress(piece) + self._deflate.flush(zlib.Z_SYNC_FLUSH)

    def end(self) -> bytes:
        """What is left."""
        return self._deflate.flush()


def counted_zeros(piece: bytes) -> bytes:
    """A piece of a stream as a stream of zeros has it."""
    if is_zeros(piece):
        return _RUN.pack(_ZEROS | len(piece))
    return _RUN.pack(len(piece)) + piece if piece else b""


def is_zeros(piece: bytes) -> bool:
    """Whether there is nothing but zeros in a piece that is not empty."""
    return bool(piece) and not piece[0] and not piece[-1] and bytes(piece).count(0) == len(piece)


class Opener(Protocol):
    """Unpacks one stream, in pieces that are never large whatever came in."""

    def open(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """What the next bytes hold.

        Raises:
            BadRecord: They are no such stream.
        """


def opener_of(codec: str) -> Opener | None:
    """What unpacks a stream; None for a codec nobody knows."""
    found = _OPENERS.get(codec)
    return found() if found is not None else None


class Inflating:
    """See `Opener`."""

    def __init__(self) -> None:
        self._inflate = zlib.decompressobj()

    def open(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """See `Opener`."""
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


class _WithZeros:
    def __init__(self) -> None:
        self._head = b""
        self._left = 0

    def open(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """See `Opener`."""
        for chunk in chunks:
            view = memoryview(chunk)
            while view:
                taken = view[: self._left or _RUN.size - len(self._head)]
                view = view[len(taken) :]
                if self._left:
                    self._left -= len(taken)
                    yield bytes(taken)
                    continue
                self._head += taken
                if len(self._head) == _RUN.size:
                    yield from self._begin()

    def _begin(self) -> Iterator[bytes]:
        (length,) = _RUN.unpack(self._head)
        self._head = b""
        if not length & _ZEROS:
            self._left = length
            return
        left = length & ~_ZEROS
        while left:
            yield _NO_BYTES[:left]
            left -= min(left, len(_NO_BYTES))


class _Both:
    def __init__(self) -> None:
        self._outer, self._inner = Inflating(), _WithZeros()

    def open(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """See `Opener`."""
        return self._inner.open(self._outer.open(chunks))


_OPENERS: dict[str, Callable[[], Opener]] = {DEFLATE: Inflating, ZEROS: _WithZeros, ZEROS_DEFLATE: _Both}
