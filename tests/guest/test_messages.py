"""What messages carry, cut out of a WebSocket's bytes: the same that the library sees, wherever those bytes are cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.frames import Frame, Opcode
from websockets.protocol import CLIENT, SERVER, Protocol

from sbxguest.mux.frames import Part
from sbxguest.mux.messages import PLAIN_KEY, MessageReader, framed, new_key
from sbxguest.wire import MAX_MESSAGE_BYTES


def packed(parts: list[Part], *, is_masked: bool, key: bytes = b"") -> bytes:
    return b"".join(framed(parts, (key or new_key()) if is_masked else b""))


SIZES = st.sampled_from([0, 1, 125, 126, 300, 65_535, 65_536, 70_000])


class Heard:
    """What a reader made of the bytes it was fed."""

    def __init__(self, *, is_masked: bool) -> None:
        self.carried = b""
        self.others: list[bytes] = []
        self.reader = MessageReader(is_masked=is_masked, on_other=self.others.append)
        self.reader.on_bytes = self._take

    def _take(self, data: Part) -> None:
        self.carried += data

    def feed(self, data: bytes, cuts: list[int]) -> None:
        ends = sorted({cut % (len(data) + 1) for cut in cuts} | {len(data)})
        for start, end in zip([0, *ends], ends, strict=False):
            # What was fed is gone at once, as it is when a connection reads on.
            fed = bytearray(data[start:end])
            self.reader.feed(memoryview(fed))
            fed[:] = bytes(len(fed))


@given(st.lists(SIZES, max_size=6), st.booleans(), st.lists(st.integers(0, 2**20), max_size=8), st.booleans())
def test_what_messages_carry_comes_out_as_it_went_in_wherever_it_is_cut(
    sizes: list[int], is_masked: bool, cuts: list[int], are_plain_between: bool
) -> None:
    key = iter([b"", PLAIN_KEY] * 3 if are_plain_between else [b""] * 6)
    made = [bytes([number % 251]) * size for number, size in enumerate(sizes, 7)]
    heard = Heard(is_masked=is_masked)
    heard.feed(b"".join(packed([one[:5], one[5:]], is_masked=is_masked, key=next(key)) for one in made), cuts)
    assert (heard.carried, heard.others) == (b"".join(made), [])


@given(SIZES, st.sampled_from([b"", PLAIN_KEY, b"key!"]))
def test_the_library_reads_what_is_packed(size: int, key: bytes) -> None:
    reading = Protocol(SERVER if key else CLIENT, max_size=None)
    reading.receive_data(b"".join(framed([memoryview(bytes(size)), b"end"], key)))
    assert reading.events_received() == [Frame(Opcode.BINARY, bytes(size) + b"end")]


@given(st.lists(st.integers(0, 2**20), max_size=8), st.booleans())
def test_fragments_are_no_less_and_other_frames_stay_whole(cuts: list[int], is_masked: bool) -> None:
    ping = Frame(Opcode.PING, b"are you there").serialize(mask=is_masked)
    parts = [
        Frame(Opcode.BINARY, b"one", fin=False).serialize(mask=is_masked),
        ping,
        Frame(Opcode.CONT, b"", fin=False).serialize(mask=is_masked),
        Frame(Opcode.CONT, b"two").serialize(mask=is_masked),
        Frame(Opcode.BINARY, b"three").serialize(mask=is_masked),
        ping,
    ]
    heard = Heard(is_masked=is_masked)
    heard.feed(b"".join(parts), cuts)
    assert (heard.carried, heard.others) == (b"onetwothree", [ping, ping])


@pytest.mark.parametrize(
    "wrong",
    [
        Frame(Opcode.BINARY, b"not masked").serialize(mask=False),
        bytes((0x82, 0xFF)) + (MAX_MESSAGE_BYTES + 1).to_bytes(8, "big"),
    ],
)
def test_what_no_peer_sends_is_the_librarys_with_all_that_follows(wrong: bytes) -> None:
    heard = Heard(is_masked=True)
    heard.feed(packed([b"before"], is_masked=True) + wrong, [])
    heard.reader.feed(packed([b"behind"], is_masked=True))
    assert heard.carried == b"before"
    assert b"".join(heard.others).startswith(wrong) and len(heard.others) == 2


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=5))
def test_whatever_comes_is_taken(data: bytes, cuts: list[int]) -> None:
    Heard(is_masked=True).feed(data, cuts)


def test_frames_of_nobody_who_listens_are_the_librarys() -> None:
    heard = Heard(is_masked=True)
    heard.reader.on_bytes = None
    frame = packed([b"x" * 1000], is_masked=True)
    heard.feed(frame + frame, [500, 1001])
    assert heard.others == [frame, frame]
