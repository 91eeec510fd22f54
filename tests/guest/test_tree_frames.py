"""What the two ends of a sync say: golden bytes, laws for any value, and streams that are cut or forged."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbxguest import wire
from sbxguest.tree import (
    BadRecord,
    Entry,
    Kind,
    Note,
    Op,
    OpKind,
    Outcome,
    Record,
    Result,
    Source,
    Stamp,
    State,
    TreeError,
)
from sbxguest.tree.entry import decode_records, decode_state, encode_record, encode_state
from sbxguest.tree.frames import (
    BatchWriter,
    Trailer,
    data_frames,
    end_frame,
    error_frame,
    manifest_reader,
    manifest_writer,
    result_reader,
    result_writer,
)
from sbxguest.tree.ops import decode_op, decode_results, encode_op, encode_result

DIGEST = bytes(range(32))
NAMES = st.binary(min_size=1, max_size=40).filter(lambda name: b"/" not in name and b"\0" not in name)
PATHS = st.lists(NAMES.filter(lambda name: name not in (b".", b"..")), min_size=1, max_size=4).map(b"/".join)
TIMES = st.integers(-(2**63), 2**63 - 1)
SIZES = st.integers(0, 2**63)
STAMPS = st.builds(Stamp, SIZES, TIMES, TIMES, st.integers(0, 2**64 - 1), st.booleans())
STATES = st.builds(State, st.sampled_from(Kind), st.binary(max_size=80), st.booleans(), st.none() | STAMPS)
RECORDS: st.SearchStrategy[Record] = st.builds(Entry, PATHS, STATES) | st.builds(
    Note, PATHS, st.sampled_from(["ignored", "vanished", "special_file"])
)


@st.composite
def operations(draw: st.DrawFn) -> Op:
    kind = draw(st.sampled_from(OpKind))
    goal, expect = None, draw(STATES)
    match kind:
        case OpKind.MKDIR:
            goal = State(Kind.DIR)
        case OpKind.PUT:
            goal = State(Kind.FILE, DIGEST, draw(st.booleans()))
        case OpKind.CHMOD:
            goal = State(Kind.FILE, draw(st.binary(max_size=32)), draw(st.booleans()))
        case OpKind.LINK:
            goal = State(Kind.LINK, draw(NAMES))
        case _:
            pass
    is_new = kind in (OpKind.MKDIR, OpKind.PUT, OpKind.LINK) and draw(st.booleans())
    known_path = draw(st.just(b"") | PATHS)
    return Op(
        kind, draw(PATHS), goal, None if is_new else expect, draw(SIZES), draw(st.sampled_from(Source)), known_path
    )


RESULTS = st.builds(
    Result,
    st.integers(0, 2**32),
    st.sampled_from(Outcome),
    st.none() | STATES,
    st.sampled_from(["", "disk_full", "not_empty"]),
)


FILE = State(Kind.FILE, b"\x01\x02", True, Stamp(5, 1_700_000_000_000_000_007, -2, 3, is_racy=True))
FILE_HEX = "01070002 0000000000000005 17979cfe362a0007 fffffffffffffffe 0000000000000003 0102"
NOTHING_HEX = "0000 0000" + " 0000000000000000" * 4
GOLDEN_RECORDS: tuple[tuple[Record, str], ...] = (
    (Entry(b"a/\xff", FILE), "0003 612fff" + FILE_HEX),
    (Entry(b"d", State(Kind.DIR)), "0001 64 02000000" + "00" * 32),
    (Entry(b"l", State(Kind.LINK, b"to")), "0001 6c 03000002" + "00" * 32 + "746f"),
    (Note(b"n", "ignored"), "0001 6e 00000007" + "00" * 32 + "69676e6f726564"),
)
GOLDEN_OPS = (
    (
        Op(OpKind.PUT, b"p", State(Kind.FILE, DIGEST, True), FILE, 7, Source.KNOWN, b"k"),
        "02 02 0000000000000007 000170 00016b 01010020" + "00" * 32 + DIGEST.hex() + FILE_HEX,
    ),
    (
        Op(OpKind.RMDIR, b"p", None, State(Kind.DIR)),
        "06 00 0000000000000000 000170 0000" + NOTHING_HEX + "02000000" + "00" * 32,
    ),
)
GOLDEN_RESULTS = (
    (Result(9, Outcome.FAILED, None, "disk_full"), "0000000000000009 02 09 6469736b5f66756c6c" + NOTHING_HEX),
    (Result(1, Outcome.DONE, FILE), "0000000000000001 00 00" + FILE_HEX),
)


@pytest.mark.parametrize(("record", "golden"), GOLDEN_RECORDS)
def test_records_have_these_bytes_for_ever(record: Record, golden: str) -> None:
    assert encode_record(record) == bytes.fromhex(golden)
    assert list(decode_records(bytes.fromhex(golden))) == [record]


@pytest.mark.parametrize(("op", "golden"), GOLDEN_OPS)
def test_operations_have_these_bytes_for_ever(op: Op, golden: str) -> None:
    assert encode_op(op) == bytes.fromhex(golden)
    assert decode_op(bytes.fromhex(golden)) == (op, len(bytes.fromhex(golden)))


@pytest.mark.parametrize(("result", "golden"), GOLDEN_RESULTS)
def test_results_have_these_bytes_for_ever(result: Result, golden: str) -> None:
    assert encode_result(result) == bytes.fromhex(golden)
    assert list(decode_results(bytes.fromhex(golden))) == [result]


def test_the_end_has_these_bytes_for_ever() -> None:
    head = bytes.fromhex("2300000000000028 0000000000000003")
    assert end_frame(Trailer(3, "ab", "f-1")) == head + b'{"count":3,"digest":"ab","cursor":"f-1"}'


@given(st.lists(RECORDS, max_size=30), st.integers(1, 4000))
def test_a_manifest_comes_out_as_it_went_in_however_it_is_cut(records: list[Record], step: int) -> None:
    writer, reader = manifest_writer(), manifest_reader()
    data = b"".join([*map(writer.add, records), writer.end("cursor")])
    came: list[Record] = []
    for start in range(0, len(data), step):
        assert reader.trailer is None
        came += reader.feed(data[start : start + step])
    assert came == records
    assert reader.trailer is not None and (reader.trailer.count, reader.trailer.cursor) == (len(records), "cursor")
    assert [one.state.stamp for one in came if isinstance(one, Entry)] == [
        one.state.stamp for one in records if isinstance(one, Entry)
    ]


@given(operations(), st.binary(max_size=20))
def test_any_operation_comes_out_as_it_went_in(op: Op, content: bytes) -> None:
    data = encode_op(op)
    assert decode_op(data + content) == (op, len(data))


@given(st.lists(RESULTS, max_size=10))
def test_results_come_out_as_they_went_in(results: list[Result]) -> None:
    writer, reader = result_writer(), result_reader()
    data = b"".join([*map(writer.add, results), writer.end()])
    assert reader.feed(data) == results
    assert reader.trailer is not None


@given(st.none() | STATES, st.binary(max_size=5))
def test_a_racy_mark_survives_the_wire(state: State | None, rest: bytes) -> None:
    data = encode_state(state)
    back, end = decode_state(data + rest, 0)
    assert (back, end) == (state, len(data))
    if state is not None and state.stamp is not None:
        assert back is not None and back.stamp is not None and back.stamp.is_racy == state.stamp.is_racy


@pytest.mark.parametrize("path", [b"", b"/etc/x", b"../x", b"a/../b", b"a//b", b"a/", b"./a", b"a\0b", b"x" * 4096])
def test_a_path_that_leads_out_of_a_tree_is_refused_everywhere(path: bytes) -> None:
    goal, there = State(Kind.FILE, DIGEST), State(Kind.FILE)
    with pytest.raises(BadRecord):
        list(decode_records(encode_record(Entry(path, FILE))))
    with pytest.raises(BadRecord):
        decode_op(encode_op(Op(OpKind.PUT, path, goal, there)))
    if path:
        with pytest.raises(BadRecord):
            decode_op(encode_op(Op(OpKind.PUT, b"fine", goal, there, known_path=path)))


SENSELESS = (
    Op(OpKind.PUT, b"p", State(Kind.FILE, b"short")),
    Op(OpKind.PUT, b"p", None),
    Op(OpKind.PUT, b"p", State(Kind.DIR)),
    Op(OpKind.MKDIR, b"p", State(Kind.FILE, DIGEST)),
    Op(OpKind.LINK, b"p", State(Kind.LINK)),
    Op(OpKind.LINK, b"p", State(Kind.LINK, b"a\0b")),
    Op(OpKind.DELETE, b"p", State(Kind.FILE, DIGEST), FILE),
    Op(OpKind.DELETE, b"p"),
    Op(OpKind.RMDIR, b"p"),
    Op(OpKind.CHMOD, b"p", State(Kind.FILE)),
)


@pytest.mark.parametrize("op", SENSELESS)
def test_an_operation_that_makes_no_sense_is_refused(op: Op) -> None:
    with pytest.raises(BadRecord):
        decode_op(encode_op(op))


@given(st.binary(max_size=300))
def test_noise_gives_values_or_an_error_and_nothing_else(noise: bytes) -> None:
    for decode in (lambda: list(decode_records(noise)), lambda: decode_op(noise), lambda: list(decode_results(noise))):
        try:
            decode()
        except BadRecord:
            continue


def test_a_cut_or_forged_manifest_has_no_end() -> None:
    writer = manifest_writer()
    entries = [Entry(b"f%d" % number, FILE) for number in range(3_000)]
    data = b"".join([*map(writer.add, entries), writer.end()])
    for cut in (0, 10, len(data) // 2, len(data) - 1):
        reader = manifest_reader()
        reader.feed(data[:cut])
        assert reader.trailer is None
    forged = bytearray(data)
    forged[200] ^= 1
    with pytest.raises(BadRecord):
        manifest_reader().feed(bytes(forged))
    with pytest.raises(BadRecord):
        manifest_reader().feed(end_frame(Trailer(1, "00" * 32)))
    with pytest.raises(BadRecord):
        manifest_reader().feed(data + data)


def test_a_stream_that_cannot_go_on_says_why() -> None:
    with pytest.raises(TreeError) as caught:
        manifest_reader().feed(error_frame(TreeError("file_not_found", "the folder is gone")))
    assert (caught.value.code, caught.value.message) == ("file_not_found", "the folder is gone")


def test_a_batch_is_frames_of_operations_and_contents() -> None:
    writer = BatchWriter()
    op = Op(OpKind.PUT, b"p", State(Kind.FILE, DIGEST), None, 3)
    data = writer.op(op, b"abc") + writer.op(op) + b"".join(data_frames(0, b"abc")) + writer.end()
    frames = wire.decode_message(data)
    assert [(frame.type, frame.cursor) for frame in frames] == [(33, 0), (33, 1), (2, 0), (35, 2)]
    assert decode_op(frames[0].payload)[0] == op and frames[0].payload.endswith(b"abc")
