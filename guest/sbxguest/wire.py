"""What both ends of the wire agree on: the generation, header names, limits and the binary frames of a job's log.

A frame is a 16-byte head and a payload: type u8, channel u8, reserved u16, payload length u32, cursor u64, all
big-endian. A cursor is a byte offset in the job's one log, over all channels. Receivers skip types they do not know;
fields are only ever added.

Over `WS /v2/jobs/{id}/attach?cursor=&writer=&hold=1&boot=` both ends send frames, one or more whole ones in each binary
message. The guest sends JOB, then what the log's stream has (DATA, GAP, HEARTBEAT, last EXIT), and ACK and ERROR in
between. The client sends STDIN, EOF, SIGNAL, RESIZE and TAKEN. The cursor of STDIN, EOF and ACK is an offset in the
input of this `writer`, a name the client makes up and keeps when it connects again: JOB says as `accepted` how far the
guest has come, and what is sent again from before is not written twice. A client keeps what is not acknowledged, and no
more than `INPUT_WINDOW_BYTES` of it may be under way. Who reads slowly gets GAP; who goes away only stops looking.

A `hold` job waits for the slowest of the readers that said `hold=1`. Each is known by its name, the `writer` here and
`reader=` where a log is asked for piece by piece, so that one that comes again within the grace is the same one.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

GENERATION = 2
FEATURES = (
    *("jobs", "jobs.stdin", "jobs.hold", "jobs.tty", "jobs.attach", "jobs.limits", "jobs.end"),
    *("shells", "files", "files.tar", "tree", "metrics", "logs", "tunnel", "ports", "secrets", "v1"),
)

BOOT_HEADER = "x-sbx-boot"
# On every error the guest itself answers with, so that it is told from one of the proxy before it.
ERROR_HEADER = "x-sbx-error"
FRAMES_TYPE = "application/vnd.sbx.frames"

KIB = 1024
MIB = 1024 * KIB
RING_BYTES = 8 * MIB
RING_BYTES_MIN = 64 * KIB
HEAD_BYTES = 64 * KIB
MAX_LINE_BYTES = 96 * KIB
RINGS_TOTAL_BYTES = 64 * MIB
MAX_PAYLOAD_BYTES = MIB
MAX_INLINE_OUTPUT_BYTES = MIB
# Of one client's input on its way; more is refused with ERROR.
INPUT_WINDOW_BYTES = 256 * KIB
MAX_MESSAGE_BYTES = 2 * MIB
MAX_SPEC_BYTES = 4 * MIB
MAX_WAIT_S = 25.0
HEARTBEAT_S = 15.0
HOLD_GRACE_S = 30.0
KILL_GRACE_S = 3.0

_HEAD = struct.Struct(">BBHIQ")
HEAD_SIZE_BYTES = _HEAD.size


class FrameType(IntEnum):
    """What a frame says. From 16 on they go from the client to the guest."""

    JOB = 1
    DATA = 2
    GAP = 3
    HEARTBEAT = 4
    EXIT = 5
    # The input before the cursor was written.
    ACK = 6
    # JSON {code, message, hint, details}: what the client sent last was refused; the connection goes on.
    ERROR = 7

    # Input that begins at the cursor.
    STDIN = 16
    # The input ends at the cursor; at a terminal, the end-of-file character is typed.
    EOF = 17
    # JSON {sig, to}, as for `…/signal`.
    SIGNAL = 18
    # JSON {cols, rows}.
    RESIZE = 19
    # The client has the log up to the cursor: lets a `hold` job go on, if the client attached with `hold=1`.
    TAKEN = 20


# Looking a member up takes as long as all else that is done with a small frame.
_DATA = int(FrameType.DATA)


class Channel(IntEnum):
    """Where bytes of a log came from."""

    NONE = 0
    OUT = 1
    ERR = 2
    PTY = 3


class BadFrame(ValueError):
    """The bytes are no frame stream, or a frame is larger than any sender makes."""


class Frame(NamedTuple):
    """One frame. `cursor` is where DATA or GAP starts, and the log's end for HEARTBEAT and EXIT."""

    type: int
    cursor: int
    payload: bytes = b""
    channel: int = Channel.NONE

    @property
    def end_cursor(self) -> int:
        """The cursor to go on from after this frame."""
        match self.type:
            case FrameType.DATA:
                return self.cursor + len(self.payload)
            case FrameType.GAP:
                return gap_end(self)
            case _:
                return self.cursor


def encode(frame: Frame) -> bytes:
    """The bytes of one frame."""
    return _HEAD.pack(frame.type, frame.channel, 0, len(frame.payload), frame.cursor) + frame.payload


def head(frame_type: int, cursor: int, size_bytes: int) -> bytes:
    """What comes before a payload of so many bytes."""
    return _HEAD.pack(frame_type, 0, 0, size_bytes, cursor)


def json_frame(frame_type: int, cursor: int, value: dict[str, object]) -> Frame:
    """A frame whose payload is a JSON object (JOB, EXIT)."""
    return Frame(frame_type, cursor, json.dumps(value, separators=(",", ":")).encode())


def gap_frame(start: int, end: int) -> Frame:
    """The bytes from `start` to `end` are no longer kept."""
    return Frame(FrameType.GAP, start, end.to_bytes(8, "big"))


def gap_end(frame: Frame) -> int:
    """The cursor behind a gap.

    Raises:
        BadFrame: The payload is no cursor, or lies before the gap's start.
    """
    end = int.from_bytes(frame.payload, "big")
    if len(frame.payload) != 8 or end < frame.cursor:
        raise BadFrame("a GAP frame must hold the cursor it ends at")
    return end


def decode_message(data: bytes) -> list[Frame]:
    """The frames of one message.

    Raises:
        BadFrame: It holds something else.
    """
    decoder = FrameDecoder()
    frames = list(decoder.feed(data))
    if not decoder.is_between_frames:
        raise BadFrame("a message must hold whole frames")
    return frames


def payload_json(frame: Frame) -> dict[str, object]:
    """The JSON object a JOB or EXIT frame holds.

    Raises:
        BadFrame: It holds something else.
    """
    try:
        value = json.loads(frame.payload)
    except ValueError as exc:
        raise BadFrame("the frame's payload is not JSON") from exc
    if not isinstance(value, dict):
        raise BadFrame("the frame's payload is not a JSON object")
    return value


class FrameDecoder:
    """Cuts a byte stream back into frames, whatever sizes the pieces arrive in.

    The payload of DATA comes out as it comes in, in as many frames as it takes: nothing waits for a frame's end and no
    byte is copied twice. All other frames come out whole.
    """

    def __init__(self) -> None:
        self._pending = bytearray()
        self._data: Frame | None = None
        self._left_bytes = 0

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Add bytes; yields every frame they complete.

        Raises:
            BadFrame: A frame claims more than `MAX_PAYLOAD_BYTES`; the stream is of no further use.
        """
        at = 0
        while at < len(data):
            if self._data is not None:
                piece = data[at : at + self._left_bytes]
                at += len(piece)
                yield self._piece(self._data, piece)
                continue
            if (frame := self._whole(data, at)) is not None:
                at += HEAD_SIZE_BYTES + len(frame.payload)
                yield frame
                continue
            at += self._collect(data, at, HEAD_SIZE_BYTES)
            if len(self._pending) < HEAD_SIZE_BYTES:
                return
            frame_type, channel, _reserved, length, cursor = _HEAD.unpack_from(self._pending)
            if length > MAX_PAYLOAD_BYTES:
                raise BadFrame(f"a frame claims {length} bytes; the limit is {MAX_PAYLOAD_BYTES}")
            if frame_type == FrameType.DATA:
                self._begin(Frame(frame_type, cursor, b"", channel), length)
                continue
            at += self._collect(data, at, HEAD_SIZE_BYTES + length)
            if len(self._pending) < HEAD_SIZE_BYTES + length:
                return
            payload = bytes(self._pending[HEAD_SIZE_BYTES:])
            self._pending.clear()
            yield Frame(frame_type, cursor, payload, channel)

    def _whole(self, data: bytes, at: int) -> Frame | None:
        """The frame at `at`, if all of it is here and it is one that comes out whole: most are, and nothing is kept."""
        start = at + HEAD_SIZE_BYTES
        if self._pending or start > len(data):
            return None
        frame_type, channel, _reserved, length, cursor = _HEAD.unpack_from(data, at)
        if frame_type == _DATA or length > MAX_PAYLOAD_BYTES or start + length > len(data):
            return None
        return Frame(frame_type, cursor, data[start : start + length], channel)

    def _collect(self, data: bytes, at: int, size_bytes: int) -> int:
        """Fill `_pending` up to `size_bytes`; returns how many bytes it took."""
        piece = data[at : at + max(0, size_bytes - len(self._pending))]
        self._pending += piece
        return len(piece)

    def _begin(self, head: Frame, length: int) -> None:
        self._pending.clear()
        self._data = head if length else None
        self._left_bytes = length

    def _piece(self, head: Frame, piece: bytes) -> Frame:
        self._left_bytes -= len(piece)
        rest = Frame(head.type, head.cursor + len(piece), b"", head.channel)
        self._data = rest if self._left_bytes else None
        return Frame(head.type, head.cursor, piece, head.channel)

    @property
    def is_between_frames(self) -> bool:
        """Whether the last frame was whole; False at the end of a stream means it was cut."""
        return not self._pending and self._data is None
