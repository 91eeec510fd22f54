"""Streams made smaller on the way: by zstd, as frames one behind the other; and zeros, which are only counted.

A stream of zeros is, again and again, `u32` and that many bytes; with the highest bit set so many zeros are meant, and
nothing follows.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Protocol

from sbxguest.tree.entry import BadRecord

if TYPE_CHECKING:
    from sbxguest.tree.zstd import zstd

ZSTD, ZEROS = "zstd", "zeros"
# Zeros counted, and that packed: what is unpacked first is named last.
ZEROS_ZSTD = f"{ZEROS}+{ZSTD}"
CODECS = (ZSTD, ZEROS, ZEROS_ZSTD)
# Says what a body is packed with.
CODEC_HEADER = "x-sbx-codec"
# Says what the body of the answer may be packed with.
ACCEPT_HEADER = "x-sbx-accept-codec"
# Under some 50 Mbit/s the closer one takes less time in all.
_LEVEL, _HARD_LEVEL = 1, 7
# 8 MiB; neither level needs as much.
_WINDOW_LOG = 23
_MAX_PIECE_BYTES = 1024 * 1024
# Each takes its time to begin, however little is in it. A packer makes two.
_MAX_FRAMES = 64
_RUN = struct.Struct(">I")
_ZEROS = 1 << 31
_NO_BYTES = bytes(_MAX_PIECE_BYTES)


class Packer:
    """Packs one stream."""

    def __init__(self) -> None:
        # Nothing is packed for a sandbox that is near.
        from sbxguest.tree.zstd import zstd

        self._zstd = zstd
        self._frame = zstd.ZstdCompressor(_LEVEL)
        self._is_hard = False

    def feed(self, piece: bytes) -> bytes:
        """What is due after one more piece; perhaps nothing."""
        return self._frame.compress(piece)

    def feed_now(self, piece: bytes) -> bytes:
        """The same with nothing held back."""
        return self._frame.compress(piece, self._frame.FLUSH_BLOCK)

    def try_harder(self) -> bytes:
        """Pack closer from here on, for the way is slow. Safe to repeat."""
        if self._is_hard:
            return b""
        last, self._frame, self._is_hard = self.end(), self._zstd.ZstdCompressor(_HARD_LEVEL), True
        return last

    def end(self) -> bytes:
        """What is left."""
        return self._frame.flush()


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


class Unpacking:
    """See `Opener`."""

    def __init__(self) -> None:
        from sbxguest.tree.zstd import zstd

        self._zstd = zstd
        self._frame = self._new_frame()
        self._frames = 0
        self._is_between = True

    def _new_frame(self) -> zstd.ZstdDecompressor:
        # Whoever packs with more memory than that wants ours.
        return self._zstd.ZstdDecompressor(options={self._zstd.DecompressionParameter.window_log_max: _WINDOW_LOG})

    def open(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """See `Opener`."""
        for chunk in chunks:
            yield from self._feed(chunk)

    def _feed(self, data: bytes) -> Iterator[bytes]:
        while data or not (self._is_between or self._frame.needs_input):
            try:
                piece = self._frame.decompress(data, _MAX_PIECE_BYTES)
            except self._zstd.ZstdError as exc:
                raise BadRecord("a packed stream is damaged") from exc
            data, self._is_between = b"", self._frame.eof
            if self._frame.eof:
                self._frames += 1
                if self._frames > _MAX_FRAMES:
                    raise BadRecord(f"a packed stream has more than {_MAX_FRAMES} frames")
                data, self._frame = self._frame.unused_data, self._new_frame()
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
        self._outer, self._inner = Unpacking(), _WithZeros()

    def open(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """See `Opener`."""
        return self._inner.open(self._outer.open(chunks))


_OPENERS: dict[str, Callable[[], Opener]] = {ZSTD: Unpacking, ZEROS: _WithZeros, ZEROS_ZSTD: _Both}
