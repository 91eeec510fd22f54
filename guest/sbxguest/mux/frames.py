"""The frames of `WS /v2/tunnel?tunnel=&epoch=`: an 18-byte head and a payload.

The head is type u8, flags u8 (0), stream u32, offset u64, payload length u32, all big-endian; each binary message holds
one or more whole frames, though receivers take them wherever they are cut. Receivers skip types they do not know.

Both ends begin a connection with HELLO and send nothing else before they have the other's. Offsets count the bytes of a
stream in one direction from its beginning, so whatever is sent twice is known again. FIN counts as one byte: a CREDIT
behind it says that the end has arrived, too.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Any, NamedTuple

from sbxguest.wire import KIB, MIB, BadFrame

_HEAD = struct.Struct(">BBIQI")
HEAD_SIZE_BYTES = _HEAD.size
# What a frame may carry; HELLO says it.
MAX_PAYLOAD_BYTES = 512 * KIB
# What one to an end that does not say so may.
PAYLOAD_BYTES = 64 * KIB
# A piece of a stream that has the tunnel for itself, and of one that shares it: a small answer waits for no more of a
# large one.
DATA_BYTES = 512 * KIB
SHARED_BYTES = 64 * KIB
MESSAGE_BYTES = 512 * KIB
# What may be under way in one direction of a stream before the other end has said how much it takes.
FIRST_WINDOW_BYTES = 64 * KIB
WINDOW_BYTES = 2 * MIB
TUNNEL_WINDOW_BYTES = 16 * MIB
MAX_STREAMS = 1024
# A part of a message that is kept keeps the whole message in memory: smaller ones are copied out.
COPIED_BYTES = 16 * KIB

NOT_LISTENING = "not_listening"
FORBIDDEN = "forbidden"
TOO_MANY = "too_many"
FAILED = "failed"


class FrameType(IntEnum):
    """What a frame says."""

    # JSON {made, opened, payload, streams: [[id, received, taken, window], …]}: `made` names the tunnel's life at this
    # end, `opened` is the highest stream it was ever asked for, `payload` the most that a frame to it may carry.
    HELLO = 1
    # JSON {port, window}: connect to a port of the sandbox's loopback; bytes may follow at once.
    OPEN = 2
    # JSON {window}.
    OPENED = 3
    # JSON {code, message}.
    REFUSED = 4
    DATA = 5
    FIN = 6
    RST = 7
    # The bytes before the offset were taken; a window's worth behind it may be under way.
    CREDIT = 8
    PING = 9
    PONG = 10
    # JSON {message}: this connection is over; another took its place.
    GOAWAY = 11


# What small messages are made of; a member of the class is looked up by a call each time.
DATA, FIN, CREDIT = int(FrameType.DATA), int(FrameType.FIN), int(FrameType.CREDIT)

# Bytes that may lie in others; nobody changes them.
Part = bytes | memoryview


class MuxFrame(NamedTuple):
    """One frame; `stream` is 0 where none is meant. A tuple, as small requests are made of little else."""

    type: int
    stream: int = 0
    offset: int = 0
    payload: Part = b""

    def document(self) -> dict[str, Any]:
        """The JSON object it carries.

        Raises:
            BadFrame: It carries something else.
        """
        try:
            value = json.loads(bytes(self.payload))
        except (ValueError, RecursionError) as exc:
            raise BadFrame("the frame's payload is not JSON") from exc
        if not isinstance(value, dict):
            raise BadFrame("the frame's payload is not a JSON object")
        return value


def encode(frame: MuxFrame) -> bytes:
    """The bytes of one frame."""
    return head(frame.type, frame.stream, frame.offset, len(frame.payload)) + bytes(frame.payload)


def head(frame_type: int, stream: int = 0, offset: int = 0, length: int = 0) -> bytes:
    """What comes before the payload of a frame, which need not be copied behind it."""
    return _HEAD.pack(frame_type, 0, stream, offset, length)


def json_frame(frame_type: FrameType, value: Mapping[str, object], *, stream: int = 0) -> MuxFrame:
    """A frame that carries a JSON object."""
    return MuxFrame(frame_type, stream, 0, json.dumps(value, separators=(",", ":")).encode())


class FrameReader:
    """The frames of a connection's bytes. DATA is given as it comes, as if it had been sent in those pieces."""

    def __init__(self) -> None:
        self._held = b""
        self._stream = 0
        self._offset = 0
        self._left_bytes = 0

    def feed(self, data: Part) -> Iterator[MuxFrame]:
        """The frames that are whole by now; pieces of at least `COPIED_BYTES` lie in `data`.

        Raises:
            BadFrame: No end sends that.
        """
        if self._held:
            data, self._held = self._held + data, b""
        at, size = 0, len(data)
        if size >= COPIED_BYTES:
            data = memoryview(data)
        if self._left_bytes and data:
            at = min(self._left_bytes, size)
            yield self._piece(data[:at])
        while at < size:
            start = at + HEAD_SIZE_BYTES
            if start > size:
                break
            frame_type, stream, offset, length = _head_at(data, at)
            end = start + length
            if frame_type == DATA:
                at = min(end, size)
                self._stream, self._offset, self._left_bytes = stream, offset, length
                if start < at:
                    yield self._piece(data[start:at])
            elif end > size:
                break
            else:
                at = end
                yield MuxFrame(frame_type, stream, offset, bytes(data[start:end]))
        if at < size:
            self._held = bytes(data[at:])

    def _piece(self, payload: Part) -> MuxFrame:
        at, size = self._offset, len(payload)
        self._offset = at + size
        self._left_bytes -= size
        return MuxFrame(DATA, self._stream, at, payload if size >= COPIED_BYTES else bytes(payload))


def _head_at(data: Part, at: int) -> tuple[int, int, int, int]:
    """Type, stream, offset and length of the payload."""
    frame_type, _flags, stream, offset, length = _HEAD.unpack_from(data, at)
    if length > MAX_PAYLOAD_BYTES:
        raise BadFrame(f"a frame claims {length} bytes; the limit is {MAX_PAYLOAD_BYTES}")
    return frame_type, stream, offset, length


def whole(document: Mapping[str, Any], name: str, *, default: int | None = None, most: int = 2**63 - 1) -> int:
    """A whole number ≥ 0 of a frame's document.

    Raises:
        BadFrame: It is something else.
    """
    return checked_whole(document.get(name, default), name, most)


def checked_whole(value: object, name: str, most: int = 2**63 - 1) -> int:
    """`value`, if it is a whole number from 0 to `most`.

    Raises:
        BadFrame: It is something else.
    """
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise BadFrame(f"`{name}` must be a whole number from 0 to {most}")
    return value
