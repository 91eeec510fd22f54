"""The frames of `WS /v2/tunnel?tunnel=&epoch=`: an 18-byte head and a payload.

The head is type u8, flags u8 (0), stream u32, offset u64, payload length u32, all big-endian; each binary message holds
one or more whole frames. Receivers skip types they do not know.

Both ends begin a connection with HELLO and send nothing else before they have the other's. Offsets count the bytes of a
stream in one direction from its beginning, so whatever is sent twice is known again. FIN counts as one byte: a CREDIT
behind it says that the end has arrived, too.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from sbxguest.wire import KIB, MIB, BadFrame

_HEAD = struct.Struct(">BBIQI")
HEAD_SIZE_BYTES = _HEAD.size
MAX_PAYLOAD_BYTES = 64 * KIB
DATA_BYTES = 32 * KIB
# Of one message, so that a small answer waits for no more than this of a large one.
MESSAGE_BYTES = 64 * KIB
# What may be under way in one direction of a stream before the other end has said how much it takes.
FIRST_WINDOW_BYTES = 64 * KIB
WINDOW_BYTES = MIB
TUNNEL_WINDOW_BYTES = 16 * MIB
MAX_STREAMS = 1024

NOT_LISTENING = "not_listening"
FORBIDDEN = "forbidden"
TOO_MANY = "too_many"
FAILED = "failed"


class FrameType(IntEnum):
    """What a frame says."""

    # JSON {made, opened, streams: [[id, received, taken, window], …]}: `made` names the tunnel's life at this end,
    # `opened` is the highest stream it was ever asked for.
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


@dataclass(frozen=True, slots=True)
class MuxFrame:
    """One frame; `stream` is 0 where none is meant."""

    type: int
    stream: int = 0
    offset: int = 0
    payload: bytes = b""

    def document(self) -> dict[str, Any]:
        """The JSON object it carries.

        Raises:
            BadFrame: It carries something else.
        """
        try:
            value = json.loads(self.payload)
        except (ValueError, RecursionError) as exc:
            raise BadFrame("the frame's payload is not JSON") from exc
        if not isinstance(value, dict):
            raise BadFrame("the frame's payload is not a JSON object")
        return value


def encode(frame: MuxFrame) -> bytes:
    """The bytes of one frame."""
    return head(frame.type, frame.stream, frame.offset, len(frame.payload)) + frame.payload


def head(frame_type: int, stream: int, offset: int, length: int) -> bytes:
    """What comes before the payload of a frame; a large payload need not be copied behind it."""
    return _HEAD.pack(frame_type, 0, stream, offset, length)


def json_frame(frame_type: FrameType, value: Mapping[str, object], *, stream: int = 0) -> MuxFrame:
    """A frame that carries a JSON object."""
    return MuxFrame(frame_type, stream, 0, json.dumps(value, separators=(",", ":")).encode())


def decode(message: bytes) -> Iterator[MuxFrame]:
    """The frames of one message.

    Raises:
        BadFrame: It holds something else.
    """
    at = 0
    while at < len(message):
        if len(message) - at < HEAD_SIZE_BYTES:
            raise BadFrame("a message must hold whole frames")
        frame_type, _flags, stream, offset, length = _HEAD.unpack_from(message, at)
        at += HEAD_SIZE_BYTES
        if length > MAX_PAYLOAD_BYTES:
            raise BadFrame(f"a frame claims {length} bytes; the limit is {MAX_PAYLOAD_BYTES}")
        if len(message) - at < length:
            raise BadFrame("a message must hold whole frames")
        yield MuxFrame(frame_type, stream, offset, message[at : at + length])
        at += length


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
