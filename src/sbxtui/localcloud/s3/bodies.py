"""The body of an upload: plain, or `aws-chunked` with a checksum behind it; counted, hashed and checked as it comes."""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import BinaryIO, Protocol

from sbxtui.localcloud.faults import Fault, FaultBody
from sbxtui.localcloud.s3.chunksigs import ChunkChain

MAX_BYTES = 2 << 30
_MAX_LINE_BYTES = 16_384
_STREAMING = "STREAMING-"
_TRAILER_SIGNATURE = b"x-amz-trailer-signature"
_UNSIGNED = ("UNSIGNED-PAYLOAD", "")
CHECKSUM = "x-amz-checksum-"


class Hash(Protocol):
    """What grows with each piece."""

    def update(self, data: bytes, /) -> None:
        """One more piece."""

    def digest(self) -> bytes:
        """Of all so far."""


@dataclass(slots=True)
class Crc32:
    """CRC-32 as a hash."""

    value: int = 0

    def update(self, data: bytes, /) -> None:
        """One more piece."""
        self.value = zlib.crc32(data, self.value)

    def digest(self) -> bytes:
        """Four bytes, the highest first."""
        return self.value.to_bytes(4, "big")


_MAKERS: Mapping[str, Callable[[], Hash]] = {"crc32": Crc32, "sha1": hashlib.sha1, "sha256": hashlib.sha256}


@dataclass(frozen=True, slots=True)
class Incoming:
    """What a client sends: its headers by lower-case name, and the body as it comes. `chain` checks chunks that are
    signed each.
    """

    headers: Mapping[str, str]
    pieces: AsyncIterator[bytes]
    chain: ChunkChain | None = None


@dataclass(slots=True)
class Upload:
    """One body on its way into `sink`."""

    incoming: Incoming
    sink: BinaryIO
    size_bytes: int = 0
    _md5: Hash = field(default_factory=lambda: hashlib.md5(usedforsecurity=False))
    _sha256: Hash = field(default_factory=hashlib.sha256)
    _checksums: dict[str, Hash] = field(default_factory=dict)
    _trailers: dict[str, str] = field(default_factory=dict)

    @property
    def etag(self) -> str:
        """As S3 has it."""
        return f'"{self._md5.digest().hex()}"'

    @property
    def checksums(self) -> dict[str, str]:
        """Those that were sent, which fit."""
        return {f"{CHECKSUM}{name}": _text(found) for name, found in self._checksums.items()}

    async def take(self) -> None:
        """Take all of it, and check what was said of it.

        Raises:
            Fault: 400, it is not what was said, or not whole; 403, a chunk was signed otherwise.
            OSError: The disk is full.
        """
        self._checksums = {name: _maker(name) for name in self._named()}
        if self._header("x-amz-content-sha256").startswith(_STREAMING):
            await self._take_chunks(_Pieces(self.incoming.pieces))
        else:
            async for piece in self.incoming.pieces:
                self._write(piece)
        self._check()

    async def _take_chunks(self, pieces: _Pieces) -> None:
        while await self._take_chunk(pieces):
            if await pieces.line():
                raise _incomplete()
        await self._take_trailers(pieces)
        declared = self._header("x-amz-decoded-content-length")
        if declared and declared != str(self.size_bytes):
            raise _incomplete()

    async def _take_chunk(self, pieces: _Pieces) -> int:
        """The next chunk; its size, 0 of the last."""
        size, signature = _chunk_of(await pieces.line())
        chain, digest = self.incoming.chain, hashlib.sha256()
        async for piece in pieces.exactly(size):
            if chain is not None:
                digest.update(piece)
            self._write(piece)
        if chain is not None:
            chain.check_chunk(digest.hexdigest(), signature)
        return size

    async def _take_trailers(self, pieces: _Pieces) -> None:
        signed = b""
        while line := await pieces.line():
            name, _, value = line.decode("latin-1").partition(":")
            self._trailers[name.strip().lower()] = value.strip()
            if not line.startswith(_TRAILER_SIGNATURE):
                signed += line + b"\n"
        if self.incoming.chain is not None and signed:
            self.incoming.chain.check_trailer(signed, self._trailers.get(_TRAILER_SIGNATURE.decode(), ""))

    def _header(self, name: str) -> str:
        return self.incoming.headers.get(name, "")

    def _write(self, piece: bytes) -> None:
        self.size_bytes += len(piece)
        if self.size_bytes > MAX_BYTES:
            raise _fault("EntityTooLarge", "Your proposed upload exceeds the maximum allowed size")
        self.sink.write(piece)
        for one in (self._md5, self._sha256, *self._checksums.values()):
            one.update(piece)

    def _named(self) -> set[str]:
        sent = {name.removeprefix(CHECKSUM) for name in self.incoming.headers if name.startswith(CHECKSUM)}
        trailer = self._header("x-amz-trailer").lower()
        return sent - {"algorithm", "type", "mode"} | ({trailer.removeprefix(CHECKSUM)} if trailer else set())

    def _check(self) -> None:
        declared = self._header("x-amz-content-sha256")
        is_named = declared not in _UNSIGNED and not declared.startswith(_STREAMING)
        if is_named and declared != self._sha256.digest().hex():
            message = "The provided 'x-amz-content-sha256' header does not match what was computed."
            raise _fault("XAmzContentSHA256Mismatch", message)
        md5 = self._header("content-md5")
        if md5 and md5 != _text(self._md5):
            raise _fault("BadDigest", "The Content-MD5 you specified did not match what we received.")
        for name, found in self._checksums.items():
            told = self._header(CHECKSUM + name) or self._trailers.get(CHECKSUM + name, "")
            if told != _text(found):
                message = f"The {name.upper()} you specified did not match the calculated checksum."
                raise _fault("BadDigest", message)


@dataclass(slots=True)
class _Pieces:
    """Pieces of any size, read as lines and counted bytes."""

    source: AsyncIterator[bytes]
    _left: bytes = b""

    async def line(self) -> bytes:
        """Up to the next CRLF, without it."""
        while b"\r\n" not in self._left:
            if len(self._left) > _MAX_LINE_BYTES:
                raise _incomplete()
            piece = await anext(self.source, b"")
            if not piece:
                # A body may end behind its last trailer without an empty line.
                line, self._left = self._left, b""
                return line
            self._left += piece
        line, _, self._left = self._left.partition(b"\r\n")
        return line

    async def exactly(self, size: int) -> AsyncIterator[bytes]:
        """So many bytes, in pieces."""
        while size:
            if not self._left:
                self._left = await anext(self.source, b"")
                if not self._left:
                    raise _incomplete()
            piece, self._left = self._left[:size], self._left[size:]
            size -= len(piece)
            yield piece


def _maker(name: str) -> Hash:
    if name not in _MAKERS:
        raise _fault("InvalidRequest", f"The local cloud checks {', '.join(sorted(_MAKERS))}, not {name}")
    return _MAKERS[name]()


def _chunk_of(line: bytes) -> tuple[int, str]:
    """Size and signature that a chunk's first line tells; without one that is empty."""
    size, _, extension = line.partition(b";")
    try:
        return int(size, 16), extension.decode("latin-1").strip().removeprefix("chunk-signature=")
    except ValueError as exc:
        raise _incomplete() from exc


def _text(found: Hash) -> str:
    return base64.b64encode(found.digest()).decode()


def _incomplete() -> Fault:
    return _fault("IncompleteBody", "You did not provide the number of bytes specified by the headers")


def _fault(code: str, message: str) -> Fault:
    return Fault(FaultBody(code, 400, message))
