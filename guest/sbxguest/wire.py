"""What both ends of the wire agree on: the generation, header names, limits and the binary frames of a job's log.

A frame is a 16-byte head and a payload: type u8, channel u8, reserved u16, payload length u32, cursor u64, all
big-endian. A cursor is a byte offset in the job's one log, over all channels. Receivers skip types they do not know;
fields are only ever added.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

GENERATION = 2
FEATURES = ("jobs", "jobs.stdin", "jobs.hold", "files", "files.tar", "metrics", "v1")

BOOT_HEADER = "x-sbx-boot"
# On every error the guest itself answers with, so that it is told from one of the proxy before it.
ERROR_HEADER = "x-sbx-error"
FRAMES_TYPE = "application/vnd.sbx.frames"

KIB = 1024
MIB = 1024 * KIB
RING_BYTES = 8 * MIB
RING_BYTES_MIN = 64 * KIB
HEAD_BYTES = 64 * KIB
RINGS_TOTAL_BYTES = 64 * MIB
MAX_PAYLOAD_BYTES = MIB
MAX_INLINE_OUTPUT_BYTES = MIB
MAX_SPEC_BYTES = 4 * MIB
MAX_WAIT_S = 25.0
HEARTBEAT_S = 15.0
HOLD_GRACE_S = 30.0
KILL_GRACE_S = 3.0

_HEAD = struct.Struct(">BBHIQ")
HEAD_SIZE_BYTES = _HEAD.size


class FrameType(IntEnum):
    """What a frame says."""

    JOB = 1
    DATA = 2
    GAP = 3
    HEARTBEAT = 4
    EXIT = 5


class Channel(IntEnum):
    """Where bytes of a log came from."""

    NONE = 0
    OUT = 1
    ERR = 2
    PTY = 3


CHANNEL_NAMES = {Channel.OUT: "out", Channel.ERR: "err", Channel.PTY: "pty"}


class BadFrame(ValueError):
    """The bytes are no frame stream, or a frame is larger than any sender makes."""


@dataclass(frozen=True, slots=True)
class Frame:
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


def json_frame(frame_type: FrameType, cursor: int, value: dict[str, object]) -> Frame:
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
    """Cuts a byte stream back into frames, whatever sizes the pieces arrive in."""

    def __init__(self) -> None:
        self._pending = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Add bytes; yields every frame they complete.

        Raises:
            BadFrame: A frame claims more than `MAX_PAYLOAD_BYTES`; the stream is of no further use.
        """
        pending = self._pending
        pending += data
        start = 0
        try:
            while len(pending) - start >= HEAD_SIZE_BYTES:
                frame_type, channel, _reserved, length, cursor = _HEAD.unpack_from(pending, start)
                if length > MAX_PAYLOAD_BYTES:
                    raise BadFrame(f"a frame claims {length} bytes; the limit is {MAX_PAYLOAD_BYTES}")
                end = start + HEAD_SIZE_BYTES + length
                if len(pending) < end:
                    return
                payload = bytes(memoryview(pending)[start + HEAD_SIZE_BYTES : end])
                start = end
                yield Frame(frame_type, cursor, payload, channel)
        finally:
            del pending[:start]

    @property
    def pending_bytes(self) -> int:
        """Bytes of a frame whose rest has not come yet; not 0 at the end of a stream means it was cut."""
        return len(self._pending)
