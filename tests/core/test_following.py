"""Each request of a connection is judged before a byte of it passes, however the bytes are cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbxtui.core.following import Follower
from sbxtui.core.webgate import Gate

OWN = b"GET /own HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = b"POST /own HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = b"POST /own HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX: 1\r\n\r\n"
REBOUND = b"GET /secret HTTP/1.1\r\nHost: evil.example\r\n\r\n"
CROSS = (
    b"POST /change HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: cross-site\r\nOrigin: http://evil.example\r\n"
    b"Content-Length: 0\r\n\r\n"
)
UPGRADE = b"GET /ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
SMUGGLED = (
    b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcd",
    b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: +4\r\n\r\nabcd",
    b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: xchunked\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding : chunked\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nX: a\rb\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nX: a\n b\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\n X: folded\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nX: a\0b\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
    b"GET http://evil.example/ HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET / HTTP/1.1\nHost: localhost\r\n\r\n",
    b"no request at all\r\n\r\n",
)
BROKEN_CHUNKS = (b"3\nabc\r\n0\r\n\r\n", b"0x3\r\nabc\r\n0\r\n\r\n", b"3\r\nabcd\r\n0\r\n\r\n", b"-1\r\n\r\n")


def passed(*pieces: bytes) -> tuple[bytes, int | None]:
    """What passes of pieces, and the status of the refusal that ends it."""
    follower = Follower(Gate())
    got = b"".join(follower.feed(piece) for piece in pieces)
    return got + follower.finish(), follower.refusal.status if follower.refusal is not None else None


@pytest.mark.parametrize("first", [OWN, POST, CHUNKED, OWN + POST + CHUNKED])
@pytest.mark.parametrize(("second", "status"), [(REBOUND, 421), (CROSS, 403)])
def test_a_later_request_is_judged_as_the_first(first: bytes, second: bytes, status: int) -> None:
    assert passed(first, second) == (first, status)
    assert passed(first + second + OWN) == (first, status)


@pytest.mark.parametrize("bad", SMUGGLED)
def test_what_two_servers_could_read_in_two_ways_passes_neither_first_nor_later(bad: bytes) -> None:
    for first in (b"", OWN) if not bad.startswith(b"no") else (OWN,):
        got, status = passed(first + bad)
        assert (got, bool(status)) == (first, True)


@pytest.mark.parametrize("chunks", BROKEN_CHUNKS)
def test_behind_broken_chunks_nothing_passes(chunks: bytes) -> None:
    head = CHUNKED[: CHUNKED.index(b"3\r\nabc")]
    got, status = passed(head, chunks, REBOUND)
    assert status == 400 and b"evil" not in got


def test_a_body_that_looks_like_a_request_is_one_bodys_bytes() -> None:
    body = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(REBOUND) + REBOUND
    assert passed(body, OWN) == (body + OWN, None)


def test_what_follows_an_upgrade_or_is_no_http_passes_as_it_is() -> None:
    for raw in (UPGRADE + b"\x81\x05hello" + REBOUND, b"SSH-2.0-x\r\n" + REBOUND, b"\x00\x01" + REBOUND, b"PING\r\n"):
        assert passed(raw) == (raw, None)


@pytest.mark.parametrize("blank", [b"\r\n", b"\r\n\r\n"])
@pytest.mark.parametrize("first", [b"", OWN, POST])
def test_empty_lines_before_a_request_pass_and_it_is_judged_all_the_same(blank: bytes, first: bytes) -> None:
    whole = first + blank + OWN
    assert passed(whole) == passed(*(whole[at : at + 1] for at in range(len(whole)))) == (whole, None)
    for bad, status in ((REBOUND, 421), (CROSS, 403)):
        whole = first + blank + bad
        assert passed(whole) == passed(*(whole[at : at + 1] for at in range(len(whole)))) == (first + blank, status)


@pytest.mark.parametrize("key", [b"\r", b"\n", b"\r\n"])
def test_who_types_an_empty_line_into_a_server_of_another_protocol_does_not_wait(key: bytes) -> None:
    follower = Follower(Gate())
    assert (follower.feed(key), follower.is_holding) == (key, False)
    assert follower.feed(b"\x00hello\r\n" + REBOUND) == b"\x00hello\r\n" + REBOUND


def test_half_a_request_is_none_and_half_a_line_of_something_else_is_passed_at_the_end() -> None:
    assert passed(OWN + OWN[:-2]) == (OWN, None)
    assert passed(OWN[:-2]) == (b"", None)
    assert passed(b"QUIT") == (b"QUIT", None)


@given(st.lists(st.integers(1, 300), max_size=12))
def test_it_does_not_matter_how_the_bytes_are_cut(sizes: list[int]) -> None:
    stream = OWN + OWN + CHUNKED + POST + OWN + REBOUND
    pieces, rest = [], stream
    for size in sizes:
        pieces.append(rest[:size])
        rest = rest[size:]
    assert passed(*pieces, rest) == (stream.removesuffix(REBOUND), 421)
