"""What both ends of a tunnel share: golden frames, refused ones, and that no cut loses or doubles a byte."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sbxguest.mux import frames
from sbxguest.mux.frames import FrameReader, FrameType, MuxFrame, encode, json_frame
from sbxguest.mux.mux import Mux
from sbxguest.mux.stream import Incoming, Stream
from sbxguest.wire import BadFrame

GOLDEN = (
    (json_frame(FrameType.HELLO, {}), "0100 00000000 0000000000000000 00000002 7b7d"),
    (json_frame(FrameType.OPEN, {}, stream=1), "0200 00000001 0000000000000000 00000002 7b7d"),
    (json_frame(FrameType.OPENED, {}, stream=1), "0300 00000001 0000000000000000 00000002 7b7d"),
    (json_frame(FrameType.REFUSED, {}, stream=1), "0400 00000001 0000000000000000 00000002 7b7d"),
    (MuxFrame(FrameType.DATA, 258, 2**40, b"hi\xff"), "0500 00000102 0000010000000000 00000003 6869ff"),
    (MuxFrame(FrameType.FIN, 3, 9), "0600 00000003 0000000000000009 00000000"),
    (MuxFrame(FrameType.RST, 3), "0700 00000003 0000000000000000 00000000"),
    (MuxFrame(FrameType.CREDIT, 3, 10), "0800 00000003 000000000000000a 00000000"),
    (MuxFrame(FrameType.PING), "0900 00000000 0000000000000000 00000000"),
    (MuxFrame(FrameType.PONG), "0a00 00000000 0000000000000000 00000000"),
    (json_frame(FrameType.GOAWAY, {}), "0b00 00000000 0000000000000000 00000002 7b7d"),
)
HELLO = encode(json_frame(FrameType.HELLO, {"made": "x", "opened": 0, "streams": []}))


@pytest.mark.parametrize(("frame", "golden"), GOLDEN)
def test_frames_of_a_tunnel_have_these_bytes_for_ever(frame: MuxFrame, golden: str) -> None:
    data = bytes.fromhex(golden)
    assert encode(frame) == data
    assert list(FrameReader().feed(data)) == [frame]


FRAMES = st.lists(
    st.builds(MuxFrame, st.integers(0, 255), st.integers(0, 2**32 - 1), st.integers(0, 2**62), st.binary())
)


@given(FRAMES, st.lists(st.integers(0, 2**20), max_size=8))
def test_frames_come_out_as_they_went_in_wherever_their_bytes_are_cut(made: list[MuxFrame], cuts: list[int]) -> None:
    reader, data = FrameReader(), b"".join(map(encode, made))
    ends = sorted({cut % (len(data) + 1) for cut in cuts} | {len(data)})
    got = [frame for start, end in zip([0, *ends], ends, strict=False) for frame in reader.feed(data[start:end])]
    assert list(said(got)) == list(said(made))


def said(frames_of: list[MuxFrame]) -> Iterator[object]:
    """What frames say, however those of DATA are cut."""
    for frame in frames_of:
        if frame.type != FrameType.DATA:
            yield frame
        for at, byte in enumerate(frame.payload if frame.type == FrameType.DATA else b""):
            yield frame.stream, frame.offset + at, byte


@given(st.binary(max_size=200))
def test_whatever_comes_is_frames_or_is_refused(data: bytes) -> None:
    mux = Mux()
    mux.link()
    for first in (b"", HELLO):
        try:
            mux.receive(first + data)
        except BadFrame:
            return


@pytest.mark.parametrize(
    "wrong",
    [
        [MuxFrame(FrameType.DATA, 1, 5, b"a gap before it")],
        [MuxFrame(FrameType.DATA, 1, at * 2**16, bytes(2**16)) for at in range(frames.WINDOW_BYTES // 2**16 + 1)],
        [MuxFrame(FrameType.FIN, 1, 7)],
        [MuxFrame(FrameType.CREDIT, 1, 1)],
        [MuxFrame(FrameType.OPENED, 1, 0, b"[]")],
        [MuxFrame(FrameType.OPENED, 1, 0, b'{"window": -1}')],
        [json_frame(FrameType.HELLO, {"made": "x", "opened": 0, "streams": []})],
        [MuxFrame(FrameType.GOAWAY, 0, 0, b"\xff")],
    ],
)
def test_what_no_other_end_sends_ends_the_connection(wrong: list[MuxFrame]) -> None:
    mux = Mux()
    mux.open(80, Taker())
    mux.link()
    mux.receive(HELLO)
    with pytest.raises(BadFrame):
        mux.receive(b"".join(map(encode, wrong)))


class Taker:
    """A sink that takes some of what is there when it is told to."""

    def __init__(self) -> None:
        self.mux: Mux | None = None
        self.stream: Stream | None = None
        self.got = bytearray()
        self.has_end = False
        self.has_room = True
        self.fate = ""

    def take(self, pieces: int) -> None:
        stream, mux = self.stream, self.mux
        if stream is None or mux is None:
            return
        while stream.incoming.inbox and pieces:
            self.got += stream.incoming.pull()
            pieces -= 1
        if stream.incoming.is_ended and not self.has_end:
            self.has_end = True
            stream.incoming.pull_fin()
        mux.took(stream)

    def on_data(self) -> None: ...

    def on_credit(self) -> None:
        self.has_room = self.stream is not None and not self.stream.out.is_full

    def on_reset(self, code: str, message: str) -> None:
        self.fate = message or code


class Ends:
    """Both ends of a tunnel, and what is on its way between them; each connection may lose any of it."""

    def __init__(self) -> None:
        self.there: dict[int, Taker] = {}
        self.host = Mux()
        self.guest = Mux(on_open=self._accept)
        self.cut()

    def _accept(self, stream: Stream) -> None:
        taker = self.there[stream.id] = Taker()
        taker.mux, taker.stream = self.guest, stream
        self.guest.attach(stream, taker)

    def open(self) -> Taker:
        taker = Taker()
        taker.mux, taker.stream = self.host, self.host.open(80, taker)
        return taker

    def cut(self) -> None:
        """All that is on its way is lost, and a new connection is made."""
        self.up: list[bytes] = []
        self.down: list[bytes] = []
        for mux in (self.host, self.guest):
            mux.unlink()
            mux.link()

    def move(self) -> bool:
        """Two messages each way, which arrive together; whether there was any."""
        for mux, way in ((self.host, self.up), (self.guest, self.down)):
            way += [b"".join(message) for _ in range(2) if (message := mux.next_message())]
        has_moved = bool(self.up or self.down)
        for mux, way in ((self.guest, self.up), (self.host, self.down)):
            # What was received is gone at once, as it is when a connection reads on.
            received = bytearray(b"".join(way))
            way.clear()
            mux.receive(memoryview(received))
            received[:] = bytes(len(received))
        return has_moved


class Traffic:
    """Two streams, each end of which writes and takes; directions 0 and 1 lead to the guest, 2 and 3 here."""

    def __init__(self) -> None:
        self.ends = Ends()
        self.here = [self.ends.open(), self.ends.open()]
        self.sent = [bytearray() for _ in range(4)]

    def _there(self, number: int) -> Taker:
        return self.ends.there.get(number + 1, Taker())

    def taker(self, way: int) -> Taker:
        return self._there(way) if way < 2 else self.here[way - 2]

    def write(self, way: int, size: int) -> None:
        writer = self.here[way] if way < 2 else self._there(way - 2)
        if writer.stream is not None and writer.mux is not None:
            data = (bytes(range(way * 50, 251)) * (size // 50 + 1))[:size]
            writer.mux.write(writer.stream, data)
            self.sent[way] += data

    def take(self, way: int, pieces: int) -> None:
        self.taker(way).take(pieces)

    def move(self, messages: int, _: int) -> None:
        for _number in range(messages):
            self.ends.move()

    def cut(self, way: int, _: int) -> None:
        """What one end has just given away is lost with all that is on its way."""
        (self.ends.host, self.ends.guest)[way % 2].next_message()
        self.ends.cut()

    def finish(self) -> None:
        """End every direction, and let all arrive."""
        for taker in self.here:
            assert taker.stream is not None
            self.ends.host.finish(taker.stream)
        for _ in range(2_000):
            self.ends.move()
            for way in range(4):
                self.take(way, 99)
            for taker in self.ends.there.values():
                if taker.has_end and taker.stream is not None and not taker.stream.out.is_finished:
                    self.ends.guest.finish(taker.stream)
            if not (self.ends.host.streams or self.ends.guest.streams):
                return
        raise AssertionError("it does not come to an end")


STEPS = st.lists(
    st.tuples(st.sampled_from(["write", "move", "take", "cut"]), st.integers(0, 3), st.integers(1, 200_000)),
    max_size=40,
)


@settings(max_examples=50, deadline=None)
@given(STEPS)
def test_no_cut_at_any_moment_loses_or_doubles_a_byte(steps: list[tuple[str, int, int]]) -> None:
    traffic = Traffic()
    for action, which, much in steps:
        getattr(traffic, action)(which, much)
    traffic.finish()
    assert [traffic.taker(way).fate for way in range(4)] == [""] * 4
    assert [bytes(traffic.taker(way).got) for way in range(4)] == [bytes(sent) for sent in traffic.sent]


def test_a_stream_of_a_guest_that_was_started_anew_is_reset_and_new_ones_work() -> None:
    ends = Ends()
    old = ends.open()
    while ends.move():
        pass
    ends.guest = Mux(on_open=ends._accept)
    ends.cut()
    new = ends.open()
    while ends.move():
        pass
    assert old.fate and not new.fate
    assert list(ends.guest.streams) == list(ends.host.streams) == [2]


def test_small_answers_pass_a_large_one_by() -> None:
    ends = Ends()
    bulk, small = ends.open(), ends.open()
    while ends.move():
        pass
    for taker in (bulk, small):
        assert taker.stream is not None
        ends.host.write(taker.stream, bytes(frames.SHARED_BYTES + 2 * frames.DATA_BYTES if taker is bulk else 10))
    sent = b"".join([part for _ in range(2) for part in ends.host.next_message()])
    kinds = [(one.stream, len(one.payload)) for one in FrameReader().feed(sent) if one.type == FrameType.DATA]
    assert kinds == [(1, frames.SHARED_BYTES), (2, 10), (1, frames.DATA_BYTES), (1, frames.DATA_BYTES)]


def test_an_end_that_does_not_say_what_it_takes_gets_frames_of_64_kib() -> None:
    mux = Mux()
    stream = mux.open(80, Taker())
    mux.link()
    mux.write(stream, bytes(100_000))
    mux.receive(HELLO)
    mux.receive(encode(json_frame(FrameType.OPENED, {"window": 2**20}, stream=1)))
    sent = FrameReader().feed(b"".join([part for _ in range(3) for part in mux.next_message()]))
    assert [len(one.payload) for one in sent if one.type == FrameType.DATA] == [65_536, 100_000 - 65_536]


@pytest.mark.parametrize(("is_far", "told_at"), [(True, 4), (False, 8)])
def test_credit_is_told_by_the_half_window_where_much_comes_in_little_time_and_by_the_quarter_elsewhere(
    is_far: bool, told_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sbxguest.mux.stream._FAST_S", -1 if is_far else 1e9)
    incoming = Incoming(16)
    incoming.told()
    for taken in range(1, told_at + 1):
        assert not incoming.is_credit_due
        incoming.accept(taken - 1, b"x")
        incoming.pull()
    assert incoming.is_credit_due and incoming.taken == told_at


def test_a_reader_that_stalls_stops_its_own_stream_only() -> None:
    ends = Ends()
    stalled, other = ends.open(), ends.open()
    while ends.move():
        pass
    for taker in (stalled, other):
        assert taker.stream is not None
        ends.host.write(taker.stream, b"x" * 3_000_000)
    for _ in range(2_000):
        ends.move()
        ends.there[2].take(99)
    assert len(ends.there[2].got) == 3_000_000
    held = ends.guest.streams[1].incoming
    assert held.received == held.window and not ends.there[1].got


def test_a_socket_that_filled_the_first_window_goes_on_when_the_other_end_has_opened_a_larger_one() -> None:
    ends = Ends()
    taker = ends.open()
    assert taker.stream is not None
    ends.host.write(taker.stream, bytes(frames.FIRST_WINDOW_BYTES))
    taker.has_room = not taker.stream.out.is_full
    assert not taker.has_room
    while ends.move():
        if 1 in ends.there:
            ends.there[1].take(99)
    # What was sent before that is worth no word of credit.
    assert taker.has_room


def test_whoever_carries_is_told_when_there_is_something_to_say() -> None:
    told: list[str] = []
    mux = Mux()
    mux.on_ready = lambda: told.append("ready")
    assert mux.next_message() == [] and not told
    mux.link()
    assert told == ["ready"]
    assert next(FrameReader().feed(b"".join(mux.next_message()))).type == FrameType.HELLO
