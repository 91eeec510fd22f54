"""Laws of message framing and of the pure parts: bodies, heads, time, tokens."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbxtui.core.bodies import ChunkedFraming, LengthFraming
from sbxtui.core.heads import BadMessage, parse_request, parse_response
from sbxtui.core.model import SandboxState
from sbxtui.localcloud import tokens
from sbxtui.localcloud.faults import Fault
from sbxtui.localcloud.idle import Clock, Due, Step, next_due
from sbxtui.localcloud.keys import HomeKeys
from sbxtui.localcloud.records import IdleRule, Record

NOW = datetime(2026, 10, 1, 12, 0, tzinfo=UTC)


def chunked(pieces: list[bytes], trailer: bytes = b"") -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces if piece) + b"0\r\n" + trailer + b"\r\n"


@given(
    st.lists(st.binary(min_size=1, max_size=50), max_size=8),
    st.sampled_from([b"", b"X-Sum: 1\r\n", b"A: b\r\nC: d\r\n"]),
    st.binary(max_size=20),
    st.lists(st.integers(1, 40), min_size=1, max_size=40),
)
def test_a_chunked_body_ends_at_its_end_however_it_is_cut(
    pieces: list[bytes], trailer: bytes, after: bytes, steps: list[int]
) -> None:
    body = chunked(pieces, trailer)
    stream = body + after
    framing, at, taken = ChunkedFraming(), 0, 0
    while not framing.is_done:
        step = steps[at % len(steps)]
        data = stream[taken : taken + step]
        fed = framing.feed(data)
        assert fed == len(data) or framing.is_done
        taken += fed
        at += 1
    assert taken == len(body)


@given(st.binary(max_size=200))
def test_no_bytes_break_the_chunk_reader(data: bytes) -> None:
    framing = ChunkedFraming()
    try:
        taken = framing.feed(data)
    except BadMessage as exc:
        assert exc.status == 400
    else:
        assert taken == len(data) or framing.is_done


@given(st.integers(0, 100), st.binary(max_size=200))
def test_a_length_takes_no_byte_more(length: int, data: bytes) -> None:
    framing = LengthFraming(length)
    assert framing.feed(data) == min(length, len(data))
    assert framing.is_done == (len(data) >= length)


@given(st.binary(max_size=300))
def test_no_bytes_break_the_head_parsers(data: bytes) -> None:
    for parse in (lambda: parse_request(data + b"\r\n\r\n"), lambda: parse_response(data + b"\r\n\r\n", b"GET")):
        try:
            parse()
        except BadMessage as exc:
            assert exc.status in (400, 431, 502, 505)


@given(st.binary(max_size=60))
def test_a_field_value_never_becomes_another_field(value: bytes) -> None:
    raw = b"GET / HTTP/1.1\r\nHost: localhost\r\nX-A: " + value + b"\r\n\r\n"
    try:
        request = parse_request(raw)
    except BadMessage:
        return
    assert len(request.head.to_bytes().split(b"\r\n")) == len(request.head.fields) + 3


@pytest.mark.parametrize(
    ("answer", "method", "framing", "is_kept"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5", b"GET", 5, True),
        (b"HTTP/1.1 200\r\nContent-Length: 0", b"GET", 0, True),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked", b"GET", "chunked", True),
        (b"HTTP/1.1 200 OK", b"GET", "close", False),
        (b"HTTP/1.1 204 No Content", b"GET", 0, True),
        (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5", b"GET", 0, True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5", b"HEAD", 0, True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: keep-alive, close", b"GET", 5, False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 5", b"GET", 5, False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\nConnection: Keep-Alive", b"GET", 5, True),
    ],
)
def test_where_an_answer_ends(answer: bytes, method: bytes, framing: int | str, is_kept: bool) -> None:
    response = parse_response(answer + b"\r\n\r\n", method)
    assert (response.framing, response.is_keep_alive) == (framing, is_kept)


# Time


def record(**changes: Any) -> Record:
    base = Record(
        id="microvm-1",
        state=SandboxState.RUNNING,
        image_name="sbx-base",
        image_arn="arn",
        image_version="1.0",
        memory_mib=512,
        runtime="process",
        endpoint_port=1,
        started_at=NOW,
        token_key="",
        fingerprint="",
        payload="",
    )
    return base.with_changes(**changes)


RULE = IdleRule(max_idle_s=600, suspended_s=300, auto_resume=True)
S = SandboxState


@pytest.mark.parametrize(
    ("given_record", "due"),
    [
        (record(), None),
        (record(idle=RULE), Due(Step.SUSPEND, 500)),
        (record(idle=IdleRule(600, 0, False)), Due(Step.TERMINATE, 500)),
        (record(idle=RULE, state=S.PENDING), None),
        (record(idle=RULE, state=S.SUSPENDING), None),
        (record(idle=RULE, state=S.TERMINATING), None),
        (record(idle=RULE, state=S.SUSPENDED, suspended_at=NOW - timedelta(seconds=100)), Due(Step.TERMINATE, 200)),
        (record(state=S.SUSPENDED, suspended_at=NOW), None),
        (record(max_duration_s=50), Due(Step.TERMINATE, 50)),
        (record(max_duration_s=50, idle=RULE), Due(Step.TERMINATE, 50)),
        (record(max_duration_s=5000, idle=RULE), Due(Step.SUSPEND, 500)),
        (record(max_duration_s=50, state=S.SUSPENDED), Due(Step.TERMINATE, 50)),
        (record(max_duration_s=50, state=S.TERMINATED, terminated_at=NOW), Due(Step.CLOSE_ENDPOINT, 60)),
    ],
)
def test_what_is_due_next(given_record: Record, due: Due | None) -> None:
    assert next_due(given_record, Clock(now=NOW, idle_s=100)) == due


def test_windows_are_divided_by_the_time_scale_and_silence_is_not() -> None:
    assert next_due(record(idle=RULE), Clock(now=NOW, idle_s=4, time_scale=60)) == Due(Step.SUSPEND, 6)
    gone = record(state=S.TERMINATED, terminated_at=NOW)
    assert next_due(gone, Clock(now=NOW, idle_s=0, time_scale=60, is_endpoint_open=False)) == Due(Step.PRUNE, 1440)


# Records and tokens


def test_a_record_comes_back_from_its_json() -> None:
    full = record(idle=RULE, max_duration_s=5, suspended_at=NOW, terminated_at=NOW, ingress_connectors=("a", "b"))
    assert Record.from_json(full.to_json()) == full
    assert Record.from_json(json.dumps(json.loads(full.to_json()) | {"of_the_future": 1})) == full


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", '{"id": 1}', '{"state": "NEW"}'])
def test_what_is_no_record_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        Record.from_json(text)


KEYS = HomeKeys("AKIATESTTEST", "secret", b"k" * 32, NOW)


@given(st.text(max_size=400))
def test_no_text_is_taken_for_a_token(text: str) -> None:
    with pytest.raises(ValueError):
        tokens.read(KEYS, text)
    with pytest.raises(Fault):
        tokens.read_page_token(KEYS, "ListMicrovms", text)


@given(st.integers(0, 2000), st.integers(1, 255))
def test_a_token_with_one_changed_byte_is_none(at: int, change: int) -> None:
    token = tokens.mint(KEYS, tokens.Grant("microvm-1", ((1, 2),), NOW))
    at %= len(token)
    changed = token[:at] + chr((ord(token[at]) ^ change) & 0x7F) + token[at + 1 :]
    if changed != token:
        with pytest.raises(ValueError):
            tokens.read(KEYS, changed)


def test_a_token_of_another_home_is_none() -> None:
    other = HomeKeys("AKIAOTHER", "secret", b"o" * 32, NOW)
    with pytest.raises(ValueError):
        tokens.read(other, tokens.mint(KEYS, tokens.Grant("microvm-1", ((1, 2),), NOW)))


def test_a_token_says_what_it_grants() -> None:
    ranges = tokens.port_ranges([{"port": 5}, {"range": {"startPort": 7, "endPort": 9}}])
    grant = tokens.read(KEYS, tokens.mint(KEYS, tokens.Grant("microvm-1", ranges, NOW)))
    assert grant == tokens.Grant("microvm-1", ((5, 5), (7, 9)), NOW)
    assert [port for port in range(1, 12) if grant.allows_port(port)] == [5, 7, 8, 9]
    assert tokens.port_ranges([{"allPorts": {}}]) == ((1, 65535),)
