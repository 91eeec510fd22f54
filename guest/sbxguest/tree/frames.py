"""The streams of a sync, made of the frames of `sbxguest.wire`. Every one ends with END, or it counts as cut.

A manifest is ENTRIES… END. A batch is, for each operation, OP and, unless its content fits in behind it, DATA frames
(cursor: offset in the content); then END. Its answer is RESULTS… END. Contents that are read are, for each file asked
for, DATA… and one RESULTS with its number; then END. HEARTBEAT may come anywhere in an answer, and ERROR instead of all
that is missing. END is JSON `{count, digest, cursor}`: how many records, and the hash over the bytes of all of them
(of a batch: over the operations without their contents).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Generic, TypeVar

from sbxguest import wire
from sbxguest.tree.entry import BadRecord, Record, decode_records, encode_record, new_digest
from sbxguest.tree.ops import Op, Result, decode_results, encode_op, encode_result
from sbxguest.tree.report import TreeError

# What is that small travels in the frame of its operation.
PACKED_BYTES = 64 * 1024
# What is larger goes up as a blob, so that a cut connection costs no more than this.
INLINE_BYTES = 4 * wire.MIB
DATA_BYTES = 256 * wire.KIB
HEARTBEAT_S = 10.0
_RECORDS_BYTES = 64 * 1024
_ERROR = int(wire.FrameType.ERROR)

T = TypeVar("T")


class TreeFrame(IntEnum):
    """Frames of a sync, besides DATA, HEARTBEAT and ERROR of `wire.FrameType`."""

    ENTRIES = 32
    OP = 33
    RESULTS = 34
    END = 35


@dataclass(frozen=True, slots=True)
class Trailer:
    """The end of a stream. `cursor` is where the change feed goes on from, for a manifest."""

    count: int
    digest: str
    cursor: str = ""


_OP = int(TreeFrame.OP)


class RecordWriter(Generic[T]):
    """Makes a stream of records, some 64 KiB in a frame.

    Args:
        frame_type: Of the frames.
        encode: The bytes of a record.
    """

    def __init__(self, frame_type: TreeFrame, encode: Callable[[T], bytes]) -> None:
        self._type = frame_type
        self._encode = encode
        self._digest = new_digest()
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._count = 0

    def add(self, record: T) -> bytes:
        """The bytes that are due after one more record; often none."""
        data = self._encode(record)
        self._held.append(data)
        self._held_bytes += len(data)
        self._count += 1
        return self.flush() if self._held_bytes >= _RECORDS_BYTES else b""

    def flush(self) -> bytes:
        """What is held back."""
        if not self._held:
            return b""
        payload = b"".join(self._held)
        self._held.clear()
        self._held_bytes = 0
        self._digest.update(payload)
        return wire.encode(wire.Frame(self._type, self._count, payload))

    def end(self, cursor: str = "") -> bytes:
        """What is held back, and the trailer."""
        return self.flush() + end_frame(Trailer(self._count, self._digest.hexdigest(), cursor))


class RecordReader(Generic[T]):
    """Reads such a stream; nothing that came counts before `trailer` is there."""

    def __init__(self, frame_type: TreeFrame, decode: Callable[[bytes], Iterator[T]]) -> None:
        self._type = frame_type
        self._decode = decode
        self._frames = wire.FrameDecoder()
        self._digest = new_digest()
        self._count = 0
        self.trailer: Trailer | None = None

    def feed(self, data: bytes) -> list[T]:
        """The records the next bytes complete.

        Raises:
            BadRecord: The stream is damaged. TreeError: The other end says why it cannot go on.
        """
        records: list[T] = []
        for frame in sound_frames(self._frames, data):
            if self.trailer is not None:
                raise BadRecord("something came behind the end")
            if frame.type == self._type:
                records += self.take(frame.payload)
            elif frame.type == TreeFrame.END:
                self.finish(frame)
        return records

    def take(self, payload: bytes) -> list[T]:
        """The records of one frame."""
        self._digest.update(payload)
        records = list(self._decode(payload))
        self._count += len(records)
        return records

    def finish(self, frame: wire.Frame) -> None:
        """Check and keep the trailer.

        Raises:
            BadRecord: It belongs to another stream.
        """
        trailer = decode_trailer(frame)
        if (trailer.count, trailer.digest) != (self._count, self._digest.hexdigest()):
            raise BadRecord(f"the end speaks of {trailer.count} records, and {self._count} came, or others")
        self.trailer = trailer


def manifest_writer() -> RecordWriter[Record]:
    """For a listing."""
    return RecordWriter(TreeFrame.ENTRIES, encode_record)


def manifest_reader() -> RecordReader[Record]:
    """For a listing."""
    return RecordReader(TreeFrame.ENTRIES, decode_records)


def result_writer() -> RecordWriter[Result]:
    """For the answer to a batch."""
    return RecordWriter(TreeFrame.RESULTS, encode_result)


def result_reader() -> RecordReader[Result]:
    """For the answer to a batch."""
    return RecordReader(TreeFrame.RESULTS, decode_results)


def encoded_result_writer() -> RecordWriter[bytes]:
    """The same for results that are encoded already."""
    return RecordWriter(TreeFrame.RESULTS, bytes)


class BatchWriter:
    """Makes the stream of a batch: for each operation `op`, then its content as `data_frames`, if it is not packed."""

    def __init__(self) -> None:
        self._digest = new_digest()
        self._count = 0

    def op(self, op: Op, packed: bytes = b"") -> bytes:
        """The next operation; `packed` is the whole content of an inline `PUT` of at most `PACKED_BYTES`."""
        return b"".join(self.parts(encode_op(op), packed))

    def parts(self, record: bytes, packed: bytes = b"") -> tuple[bytes, bytes, bytes]:
        """The same, still apart, for an operation that is encoded already."""
        self._digest.update(record)
        self._count += 1
        return wire.head(_OP, self._count - 1, len(record) + len(packed)), record, packed

    def end(self) -> bytes:
        """The trailer."""
        return end_frame(Trailer(self._count, self._digest.hexdigest()))


def data_frames(offset: int, piece: bytes) -> Iterator[bytes]:
    """A piece of content that begins at `offset`, as DATA frames."""
    for start in range(0, len(piece), DATA_BYTES):
        part = piece[start : start + DATA_BYTES]
        yield wire.encode(wire.Frame(wire.FrameType.DATA, offset + start, part))


def end_frame(trailer: Trailer) -> bytes:
    """The bytes of a trailer."""
    value: dict[str, object] = {"count": trailer.count, "digest": trailer.digest, "cursor": trailer.cursor}
    return wire.encode(wire.json_frame(TreeFrame.END, trailer.count, value))


def error_frame(error: TreeError) -> bytes:
    """Why a stream that has begun cannot be brought to its end."""
    return wire.encode(wire.json_frame(wire.FrameType.ERROR, 0, {"code": error.code, "message": error.message}))


def decode_trailer(frame: wire.Frame) -> Trailer:
    """The trailer an END frame holds.

    Raises:
        BadRecord: It holds none.
    """
    try:
        value = wire.payload_json(frame)
        count, digest, cursor = value["count"], value["digest"], value.get("cursor", "")
    except (wire.BadFrame, KeyError) as exc:
        raise BadRecord("an end without its figures") from exc
    if not isinstance(count, int) or not isinstance(digest, str) or not isinstance(cursor, str):
        raise BadRecord("an end without its figures")
    return Trailer(count, digest, cursor)


def sound_frames(decoder: wire.FrameDecoder, data: bytes) -> Iterable[wire.Frame]:
    """Frames that say something; ERROR and what is no frame are raised."""
    try:
        for frame in decoder.feed(data):
            if frame.type == _ERROR:
                said = wire.payload_json(frame)
                raise TreeError(str(said.get("code", "")), str(said.get("message", "")))
            yield frame
    except wire.BadFrame as exc:
        raise BadRecord(str(exc)) from exc


class ContentReader:
    """Reads the answer to a request for contents: pieces of the file that is on, then its result, then the next."""

    def __init__(self) -> None:
        self._frames = wire.FrameDecoder()
        self._results = result_reader()

    @property
    def trailer(self) -> Trailer | None:
        """The end, when it has come."""
        return self._results.trailer

    def feed(self, data: bytes) -> Iterator[bytes | Result]:
        """What the next bytes bring.

        Raises:
            BadRecord: The stream is damaged. TreeError: The other end says why it cannot go on.
        """
        for frame in sound_frames(self._frames, data):
            match frame.type:
                case wire.FrameType.DATA:
                    yield frame.payload
                case TreeFrame.RESULTS:
                    yield from self._results.take(frame.payload)
                case TreeFrame.END:
                    self._results.finish(frame)
                case _:
                    continue
