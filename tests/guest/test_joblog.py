"""The byte log of a job: what is kept, what is a gap, and what a killed writer leaves behind."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sbxguest import joblog, wire
from sbxguest.joblog import JobLog
from sbxguest.wire import Channel, Frame, FrameDecoder, FrameType

RING = 64 * wire.KIB
BOTH = (Channel.OUT, Channel.ERR)


@contextmanager
def _log(ring_bytes: int = RING, meta: bytes = b"{}") -> Iterator[JobLog]:
    log = JobLog.create("test", ring_bytes=ring_bytes, meta=meta)
    try:
        yield log
    finally:
        log.close()


def _frames(log: JobLog, cursor: int = 0, limit_bytes: int = 1 << 30) -> list[Frame]:
    pieces: list[bytes] = []
    end = log.read(cursor, limit_bytes, pieces)
    frames = list(FrameDecoder().feed(b"".join(pieces)))
    assert not frames or frames[-1].end_cursor == end
    return frames


def _bytes(log: JobLog, cursor: int = 0) -> dict[int, bytes]:
    """Every kept byte by its cursor's channel, in order."""
    found = {channel: bytearray() for channel in BOTH}
    for frame in _frames(log, cursor):
        if frame.type == FrameType.DATA:
            found[Channel(frame.channel)] += frame.payload
    return {channel: bytes(data) for channel, data in found.items()}


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(BOTH), st.integers(1, 30_000), st.integers(0, 255)), max_size=30), st.data())
def test_any_cursor_reads_what_a_plain_list_of_bytes_would(
    writes: list[tuple[Channel, int, int]], data: st.DataObject
) -> None:
    # Channel and value of every byte; both are 255 where there is a gap.
    channels, values, seen_channels, seen_values = bytearray(), bytearray(), bytearray(), bytearray()
    with _log() as log:
        for channel, size, fill in writes:
            block = bytes((fill + n) % 255 for n in range(size))
            log.add(block, channel)
            channels += bytes([channel]) * size
            values += block
        assert log.total == len(values)
        cursor = data.draw(st.integers(0, len(values)))
        for frame in _frames(log, cursor):
            is_gap = frame.type == FrameType.GAP
            count = frame.end_cursor - frame.cursor if is_gap else len(frame.payload)
            seen_channels += bytes([255 if is_gap else frame.channel]) * count
            seen_values += b"\xff" * count if is_gap else frame.payload
    kept_from = max(wire.HEAD_BYTES, len(values) - RING)
    for model in (channels, values):
        model[wire.HEAD_BYTES : kept_from] = b"\xff" * max(0, kept_from - wire.HEAD_BYTES)
    assert (seen_channels, seen_values) == (channels[cursor:], values[cursor:])


def test_the_first_bytes_are_kept_for_ever_and_the_gap_behind_them_is_named() -> None:
    with _log() as log:
        log.add(b"a" * wire.HEAD_BYTES, Channel.OUT)
        log.add(b"b" * (3 * RING), Channel.OUT)
        head, gap, *rest = _frames(log)
    assert (head.payload, gap.type) == (b"a" * wire.HEAD_BYTES, FrameType.GAP)
    assert (gap.cursor, gap.end_cursor) == (wire.HEAD_BYTES, wire.HEAD_BYTES + 2 * RING)
    assert sum(len(frame.payload) for frame in rest) == RING


@pytest.mark.long
def test_very_many_changes_of_channel_cost_no_more_than_the_index_has() -> None:
    changes = joblog.INDEX_SLOTS + 1000
    with _log(ring_bytes=wire.RING_BYTES) as log:
        log.add(b"x" * wire.HEAD_BYTES, Channel.OUT)
        for n in range(changes):
            log.add(b"e" if n % 2 == 0 else b"o", BOTH[1 - n % 2])
        frames = _frames(log, wire.HEAD_BYTES)
        kept = [frame for frame in frames if frame.type == FrameType.DATA]
        assert len(kept) == joblog.INDEX_SLOTS
        assert kept[-1].end_cursor == log.total
        again = JobLog(os.dup(log.fd))
        assert _frames(again, wire.HEAD_BYTES) == frames
        again.close()


def test_a_log_that_is_opened_again_says_the_same() -> None:
    with _log(meta=b'{"a":1}') as log:
        for n in range(40):
            log.add(bytes([n]) * 7000, BOTH[n % 2])
        again = JobLog(os.dup(log.fd))
        assert (again.total, again.meta, again.channel_totals) == (log.total, b'{"a":1}', log.channel_totals)
        assert _frames(again) == _frames(log)
        again.add(b"more", Channel.OUT)
        assert _bytes(again, log.total)[Channel.OUT] == b"more"
        again.close()


@pytest.mark.parametrize("filled", [0, 100, wire.HEAD_BYTES - 5, wire.HEAD_BYTES, wire.HEAD_BYTES + RING - 3])
def test_what_had_left_the_pipe_when_the_writer_was_killed_is_in_the_log(
    filled: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def die(*_args: object) -> None:
        raise Killed

    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    with _log() as log:
        log.add(b"x" * filled, Channel.OUT)
        os.write(write_end, b"0123456789")
        with monkeypatch.context() as patch:
            patch.setattr(JobLog, "_publish", die)
            with pytest.raises(Killed):
                log.take(read_end, Channel.ERR, 1 << 20)
        again = JobLog(os.dup(log.fd))
        while again.total < filled + 10:
            again.take(read_end, Channel.ERR, 1 << 20)
        assert _bytes(again, filled)[Channel.ERR] == b"0123456789"
        assert again.total == filled + 10
        again.close()
    os.close(read_end)
    os.close(write_end)


def test_a_kernel_without_splice_for_this_file_is_no_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object, **_more: object) -> int:
        raise OSError(errno.EINVAL, "as some kernels answer")

    monkeypatch.setattr(os, "splice", refuse)
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    with _log() as log:
        os.write(write_end, b"abc")
        assert log.take(read_end, Channel.OUT, 2) == 2
        assert log.take(read_end, Channel.OUT, 2) == 1
        with pytest.raises(BlockingIOError):
            log.take(read_end, Channel.OUT, 2)
        os.close(write_end)
        assert log.take(read_end, Channel.OUT, 2) == 0
        assert _bytes(log)[Channel.OUT] == b"abc"
    os.close(read_end)


def test_room_says_what_fits_without_losing_anything_from_a_cursor_on() -> None:
    with _log() as log:
        assert log.room(0) == RING + wire.HEAD_BYTES
        log.add(b"x" * (wire.HEAD_BYTES + 1000), Channel.OUT)
        assert log.room(0) == RING - 1000
        assert log.room(wire.HEAD_BYTES + 500) == RING - 500
        log.add(b"x" * (RING - 1000), Channel.OUT)
        assert log.room(0) == 0
        assert _frames(log)[-1].end_cursor == log.total
        assert all(frame.type == FrameType.DATA for frame in _frames(log))


def test_a_file_that_is_no_log_is_refused() -> None:
    fd = os.memfd_create("not-a-log")
    os.write(fd, bytes(100))
    with pytest.raises(ValueError, match="not a job log"):
        JobLog(fd)
    os.close(fd)
