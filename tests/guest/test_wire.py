"""The frames both ends speak: golden bytes, and laws for any cut of the stream."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbxguest import wire
from sbxguest.wire import Channel, Frame, FrameDecoder, FrameType

GOLDEN = (
    (Frame(FrameType.DATA, 258, b"hi\xff", Channel.ERR), "0202000000000003 0000000000000102 6869ff"),
    (wire.gap_frame(1, 2**40), "0300000000000008 0000000000000001 0000010000000000"),
    (Frame(FrameType.HEARTBEAT, 7), "0400000000000000 0000000000000007"),
    (wire.json_frame(FrameType.EXIT, 9, {"code": 0}), "050000000000000a 0000000000000009 7b22636f6465223a307d"),
    (wire.json_frame(FrameType.JOB, 0, {}), "0100000000000002 0000000000000000 7b7d"),
    (Frame(FrameType.ACK, 9), "0600000000000000 0000000000000009"),
    (wire.json_frame(FrameType.ERROR, 0, {}), "0700000000000002 0000000000000000 7b7d"),
    (Frame(FrameType.STDIN, 4, b"ls\r"), "1000000000000003 0000000000000004 6c730d"),
    (Frame(FrameType.EOF, 7), "1100000000000000 0000000000000007"),
    (wire.json_frame(FrameType.SIGNAL, 0, {"sig": 2}), "1200000000000009 0000000000000000 7b22736967223a327d"),
    (wire.json_frame(FrameType.RESIZE, 0, {}), "1300000000000002 0000000000000000 7b7d"),
    (Frame(FrameType.TAKEN, 2**40), "1400000000000000 0000010000000000"),
)


def _joined(frames: list[Frame]) -> list[Frame]:
    """Pieces of DATA put together where they follow each other."""
    joined: list[Frame] = []
    for frame in frames:
        last = joined[-1] if joined else None
        is_next = last is not None and last.type == frame.type == FrameType.DATA and last.channel == frame.channel
        if last is not None and is_next and last.end_cursor == frame.cursor:
            joined[-1] = Frame(FrameType.DATA, last.cursor, last.payload + frame.payload, last.channel)
        else:
            joined.append(frame)
    return joined


@pytest.mark.parametrize(("frame", "golden"), GOLDEN)
def test_frames_have_these_bytes_for_ever(frame: Frame, golden: str) -> None:
    data = bytes.fromhex(golden)
    assert wire.encode(frame) == data
    assert list(FrameDecoder().feed(data)) == [frame]


FRAMES = st.builds(
    Frame,
    st.integers(0, 255),
    st.integers(0, 2**62),
    st.binary(min_size=1, max_size=300),
    st.integers(0, 255),
)


@given(st.lists(FRAMES, max_size=8), st.lists(st.integers(0, 3000), max_size=12))
def test_any_cut_of_the_stream_gives_the_same_frames(frames: list[Frame], cuts: list[int]) -> None:
    data = b"".join(map(wire.encode, frames))
    decoder = FrameDecoder()
    decoded: list[Frame] = []
    borders = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    for start, end in itertools.pairwise(borders):
        decoded += decoder.feed(data[start:end])
    assert _joined(decoded) == _joined(frames)
    assert decoder.is_between_frames


@given(st.binary(max_size=200))
def test_noise_gives_frames_or_an_error_and_nothing_else(noise: bytes) -> None:
    try:
        frames = list(FrameDecoder().feed(noise))
    except wire.BadFrame:
        return
    assert sum(len(frame.payload) for frame in frames) <= len(noise)


def test_a_frame_larger_than_any_sender_makes_is_refused_before_it_is_collected() -> None:
    head = bytes([FrameType.EXIT, 0, 0, 0]) + (wire.MAX_PAYLOAD_BYTES + 1).to_bytes(4, "big") + bytes(8)
    with pytest.raises(wire.BadFrame):
        list(FrameDecoder().feed(head))


@pytest.mark.parametrize("payload", [b"", b"1234567", b"[]", b"{", (4).to_bytes(8, "big")])
def test_a_gap_or_a_document_that_makes_no_sense_is_an_error(payload: bytes) -> None:
    with pytest.raises(wire.BadFrame):
        wire.gap_end(Frame(FrameType.GAP, 5, payload))
    with pytest.raises(wire.BadFrame):
        wire.payload_json(Frame(FrameType.EXIT, 0, payload))


def test_an_unfinished_frame_is_seen_as_cut() -> None:
    decoder = FrameDecoder()
    list(decoder.feed(wire.encode(Frame(FrameType.DATA, 0, b"abc", Channel.OUT))[:-1]))
    assert not decoder.is_between_frames


@given(st.lists(FRAMES, max_size=8), st.integers(1, 40))
def test_a_message_is_whole_frames_or_an_error(frames: list[Frame], cut: int) -> None:
    data = b"".join(map(wire.encode, frames))
    assert wire.decode_message(data) == frames
    if frames and cut <= 16 + len(frames[-1].payload) and cut != len(wire.encode(frames[-1])):
        with pytest.raises(wire.BadFrame):
            wire.decode_message(data[:-cut])
