"""The byte log of one job, in one anonymous file that init keeps too: whoever holds the file has the whole job.

    0        fixed head: magic, ring size, length of the meta document
    64       log state: total bytes, segment count, bytes of out and err          (one write publishes all four)
    128      arm: (cursor, channel) of a splice that may be under way
    192      job state, see `jobstate.py`
    4 KiB    meta document (JSON): what was asked for
    64 KiB   segment index: one u64 (cursor << 2 | channel) where the channel changes; first those of the kept head,
             then a ring of `INDEX_SLOTS`
    DATA     the first `HEAD_BYTES` of output for ever, then a ring of the rest

Bytes go from pipe to file with splice(2), which moves the file's offset in the same step. So the offset tells, after
the server was killed at any instruction, how much had left the pipe: nothing is lost and nothing is doubled.
"""

from __future__ import annotations

import errno
import os
import struct
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator

from sbxguest import wire

INDEX_SLOTS = 64 * 1024

_MAGIC = b"sbxlog02"
_FIXED = struct.Struct("<8sQQ")
_STATE = struct.Struct("<QQQQ")
_STATE_AT = 64
_ARM = struct.Struct("<QQ")
_ARM_AT = 128
_META_AT = 4 * wire.KIB
META_BYTES_MAX = 60 * wire.KIB
_INDEX_AT = 64 * wire.KIB
_HEAD_SLOTS = wire.HEAD_BYTES
_DATA_AT = _INDEX_AT + 8 * (_HEAD_SLOTS + INDEX_SLOTS)
_STEP_BYTES = 256 * wire.KIB
_PIECE_BYTES = 32 * wire.KIB
_FRAME_HEAD = struct.Struct(">BBHIQ")


class JobLog:
    """The log over its file; closes the file in `close`. Not safe for two writers."""

    def __init__(self, fd: int) -> None:
        """Open a log that `create` made, also one whose writer was killed.

        Raises:
            ValueError: The file is no log.
        """
        self.ring_bytes: int
        self.total: int
        magic, self.ring_bytes, self._meta_bytes = _FIXED.unpack(os.pread(fd, _FIXED.size, 0))
        if magic != _MAGIC:
            raise ValueError("not a job log")
        self.fd = fd
        self.total, self._count, out, err = _STATE.unpack(os.pread(fd, _STATE.size, _STATE_AT))
        self.channel_totals = {
            wire.Channel.OUT: out,
            wire.Channel.ERR: err,
            wire.Channel.PTY: self.total - out - err,
        }
        # Told where the log grew and by how much, once that can be read.
        self.on_growth: Callable[[int, int], None] = _nobody
        self._head_index: array[int] = array("Q")
        self._ring_index: array[int] = array("Q")
        self._load_index()
        self._recover()

    @classmethod
    def create(cls, name: str, *, ring_bytes: int, meta: bytes) -> JobLog:
        """A new, empty log with a meta document of at most `META_BYTES_MAX`."""
        fd = os.memfd_create(f"sbx-job-{name}", os.MFD_CLOEXEC)
        try:
            os.pwrite(fd, _FIXED.pack(_MAGIC, ring_bytes, len(meta)), 0)
            os.pwrite(fd, _STATE.pack(0, 0, 0, 0), _STATE_AT)
            os.pwrite(fd, _ARM.pack(2**63, 0), _ARM_AT)
            os.pwrite(fd, meta, _META_AT)
            return cls(fd)
        except OSError:
            os.close(fd)
            raise

    def close(self) -> None:
        """Close the file here; init may still hold it."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    @property
    def is_closed(self) -> bool:
        """Whether the job was forgotten."""
        return self.fd < 0

    @property
    def meta(self) -> bytes:
        """The meta document given to `create`."""
        return os.pread(self.fd, self._meta_bytes, _META_AT)

    @property
    def size_bytes(self) -> int:
        """Memory that the kept bytes take."""
        return min(self.total, wire.HEAD_BYTES + self.ring_bytes)

    @property
    def floor(self) -> int:
        """The oldest cursor of the ring part; between `HEAD_BYTES` and it, bytes are gone."""
        oldest = max(wire.HEAD_BYTES, self.total - self.ring_bytes)
        if len(self._ring_index) >= INDEX_SLOTS:
            oldest = max(oldest, self._ring_index[-INDEX_SLOTS] >> 2)
        return oldest

    def room(self, kept_from: int) -> int:
        """How many bytes can be added without losing any from cursor `kept_from` on."""
        if len(self._ring_index) >= INDEX_SLOTS and self._ring_index[1 - INDEX_SLOTS] >> 2 > kept_from:
            return 0
        return max(0, self.ring_bytes + max(kept_from, wire.HEAD_BYTES) - self.total)

    # -- writing ------------------------------------------------------------------------------------------------------

    def take(self, pipe: int, channel: int, limit_bytes: int) -> int:
        """Move what is in a nonblocking pipe into the log, at most `limit_bytes`. Returns 0 at the pipe's end.

        Raises:
            BlockingIOError: The pipe is empty now.
        """
        at = self._position(self.total)
        length = min(limit_bytes, self._contiguous(self.total), _STEP_BYTES)
        os.lseek(self.fd, at, os.SEEK_SET)
        os.pwrite(self.fd, _ARM.pack(self.total, channel), _ARM_AT)
        try:
            moved = os.splice(pipe, self.fd, length, flags=os.SPLICE_F_NONBLOCK)
        except OSError as exc:
            if exc.errno not in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
                raise
            data = os.read(pipe, length)
            moved = os.pwrite(self.fd, data, at) if data else 0
        self._publish(channel, moved)
        return moved

    def add(self, data: bytes, channel: int) -> None:
        """Append bytes of our own making."""
        while data:
            piece = data[: self._contiguous(self.total)]
            os.pwrite(self.fd, piece, self._position(self.total))
            self._publish(channel, len(piece))
            data = data[len(piece) :]

    def _publish(self, channel: int, count: int) -> None:
        if count == 0:
            return
        index = self._ring_index or self._head_index
        if not index or index[-1] & 3 != channel:
            self._add_segment(self.total << 2 | channel)
        self.total += count
        if channel in self.channel_totals:
            self.channel_totals[wire.Channel(channel)] += count
        self._write_state()
        self.on_growth(self.total - count, count)

    def _write_state(self) -> None:
        totals = self.channel_totals
        state = _STATE.pack(self.total, self._count, totals[wire.Channel.OUT], totals[wire.Channel.ERR])
        os.pwrite(self.fd, state, _STATE_AT)

    def _add_segment(self, entry: int) -> None:
        if entry >> 2 < wire.HEAD_BYTES:
            slot = len(self._head_index)
            self._head_index.append(entry)
        else:
            slot = _HEAD_SLOTS + (self._count - len(self._head_index)) % INDEX_SLOTS
            self._ring_index.append(entry)
            if len(self._ring_index) > 2 * INDEX_SLOTS:
                del self._ring_index[:INDEX_SLOTS]
        os.pwrite(self.fd, entry.to_bytes(8, "little"), _INDEX_AT + 8 * slot)
        self._count += 1

    # -- reading ------------------------------------------------------------------------------------------------------

    def read(self, cursor: int, limit_bytes: int, pieces: list[bytes]) -> int:
        """Append frames (DATA, GAP) from `cursor` on to `pieces`, encoded. Returns the cursor behind them."""
        end_limit = min(self.total, cursor + limit_bytes)
        while cursor < end_limit:
            if wire.HEAD_BYTES <= cursor < self.floor:
                pieces.append(wire.encode(wire.gap_frame(cursor, self.floor)))
                cursor = self.floor
                end_limit = min(self.total, cursor + limit_bytes)
                continue
            channel, segment_end = self._segment(cursor)
            length = min(segment_end, end_limit) - cursor
            length = min(length, self._contiguous(cursor), wire.MAX_PAYLOAD_BYTES)
            pieces.append(_FRAME_HEAD.pack(wire.FrameType.DATA, channel, 0, length, cursor))
            pieces.append(os.pread(self.fd, length, self._position(cursor)))
            cursor += length
        return cursor

    def pieces(self, start: int, end: int) -> Iterator[tuple[int, int, bytes]]:
        """Cursor, channel and bytes of what is kept of `start` to `end`, in order, at most 32 KiB each."""
        cursor = start
        while cursor < end:
            if wire.HEAD_BYTES <= cursor < self.floor:
                cursor = self.floor
                continue
            channel, segment_end = self._segment(cursor)
            length = min(min(segment_end, end) - cursor, self._contiguous(cursor), _PIECE_BYTES)
            yield cursor, channel, os.pread(self.fd, length, self._position(cursor))
            cursor += length

    def _segment(self, cursor: int) -> tuple[int, int]:
        """Channel of the byte at `cursor`, and where its segment ends."""
        for index, rest in ((self._ring_index, ()), (self._head_index, self._ring_index)):
            at = bisect_right(index, cursor << 2 | 3)
            if at:
                following = index[at] if at < len(index) else (rest[0] if rest else self.total << 2)
                return index[at - 1] & 3, following >> 2
        raise ValueError(f"cursor {cursor} is before the log's first byte")

    def _position(self, cursor: int) -> int:
        if cursor < wire.HEAD_BYTES:
            return _DATA_AT + cursor
        return _DATA_AT + wire.HEAD_BYTES + (cursor - wire.HEAD_BYTES) % self.ring_bytes

    def _contiguous(self, cursor: int) -> int:
        if cursor < wire.HEAD_BYTES:
            return wire.HEAD_BYTES - cursor
        return self.ring_bytes - (cursor - wire.HEAD_BYTES) % self.ring_bytes

    # -- after a crash ------------------------------------------------------------------------------------------------

    def _load_index(self) -> None:
        head = array("Q", os.pread(self.fd, 8 * min(self._count, _HEAD_SLOTS), _INDEX_AT))
        while head and not head[-1]:
            head.pop()
        self._head_index = head
        in_ring = self._count - len(head)
        ring = array("Q", os.pread(self.fd, 8 * min(in_ring, INDEX_SLOTS), _INDEX_AT + 8 * _HEAD_SLOTS))
        turn = in_ring % INDEX_SLOTS if in_ring > INDEX_SLOTS else 0
        self._ring_index = ring[turn:] + ring[:turn]

    def _recover(self) -> None:
        """Publish what a splice had moved when the writer was killed."""
        start, channel = _ARM.unpack(os.pread(self.fd, _ARM.size, _ARM_AT))
        if start == self.total:
            moved = os.lseek(self.fd, 0, os.SEEK_CUR) - self._position(start)
            if 0 < moved <= _STEP_BYTES:
                self._publish(channel, moved)


def _nobody(_start: int, _count: int) -> None:
    """Nobody asks to be told."""
