"""Who may pass from a web page to a port on loopback: a table of requests, and laws for any bytes."""

from __future__ import annotations

import ssl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbxtui.core.webgate import Gate, Passed, Refusal, gate_for

GATE = gate_for(["dev.example"], ["https://tool.example"])
CROSS = "Sec-Fetch-Site: cross-site\r\n"
UPGRADE = "Connection: Upgrade\r\nUpgrade: websocket\r\n"


def http(line: str, *fields: str, host: str = "localhost:3000") -> bytes:
    return f"{line} HTTP/1.1\r\nHost: {host}\r\n{''.join(fields)}\r\n".encode()


def hello(name: str | None) -> bytes:
    """How a TLS client begins."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    outgoing = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


PASSING = (
    http("GET /"),
    *(
        http("GET /", host=host)
        for host in ("127.0.0.1", "[::1]:8080", "LOCALHOST", "a-b.localhost:1", "dev.example:9")
    ),
    http("POST /", "Sec-Fetch-Site: same-origin\r\nOrigin: http://localhost:3000\r\n"),
    http("POST /", CROSS, "Origin: http://127.0.0.1:4000\r\n"),
    http("POST /", CROSS, "Origin: https://tool.example\r\n"),
    http("POST /", "Origin: http://localhost:3000\r\n"),
    http("POST /"),
    http("GET /", CROSS),
    http("GET /ws", UPGRADE, "Origin: http://localhost:3000\r\n"),
    http("GET /ws", UPGRADE),
    http("OPTIONS *"),
    http("GET http://localhost:3000/x"),
    http("POST /upload", "Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n"),
    b"GET / HTTP/1.0\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"SSH-2.0-OpenSSH_9.2\r\n",
    b"*1\r\n$4\r\nPING\r\n",
    b"PING\r\n",
    b"EHLO me\r\n",
    b"\x00\x00\x00\x08\x04\xd2\x16\x2f",
    b"get / http/1.1\r\n",
    b"GET " + b"x" * 20_000,
    hello(None),
    hello("localhost"),
    hello("app-3000.localhost"),
    hello("dev.example"),
)
REFUSED = (
    (http("GET /", host="evil.example"), 421),
    (http("GET /", host="localhost.evil.example"), 421),
    (http("GET /", host="127.0.0.1.evil.example"), 421),
    (http("GET /", host="evil.example@localhost"), 421),
    (http("GET /", host="10.0.0.1"), 421),
    (http("GET /", host=""), 421),
    (http("GET http://evil.example/"), 421),
    (http("POST /", CROSS), 403),
    (http("POST /", CROSS, "Origin: http://evil.example\r\n"), 403),
    (http("POST /", CROSS, "Origin: null\r\n"), 403),
    (http("POST /", "Origin: http://evil.example\r\n"), 403),
    (http("POST /", "Origin: null\r\n"), 403),
    (http("DELETE /", CROSS, "Origin: http://localhost.evil.example\r\n"), 403),
    (http("GET /", UPGRADE, "Origin: http://evil.example\r\n"), 403),
    (http("GET /", UPGRADE, "Origin: http://localhost\r\nOrigin: http://evil.example\r\n"), 403),
    (http("CONNECT localhost:3000"), 421),
    (http("POST /", "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"), 400),
    (http("POST /", "Content-Length: 5\r\nContent-Length: 6\r\n"), 400),
    (http("GET /", "Host: localhost\r\n"), 400),
    (http("GET /", "X: a\r\n folded\r\n"), 400),
    (http("GET /", "X : a\r\n"), 400),
    (http("GET /", "X: a\rb\r\n"), 400),
    (b"GET / HTTP/1.1\nHost: localhost\n\n", 400),
    (b"GET / HTTP/1.1\r\n\r\n", 400),
    (http("GET /", "X: " + "x" * 70_000 + "\r\n"), 431),
    (hello("evil.example"), 0),
    (b"\x16\x03\x01\x00\x05\x02\x00\x00\x01\x00", 0),
)
ALL = (*PASSING, *(data for data, _ in REFUSED))


@pytest.mark.parametrize("data", PASSING, ids=map(str, range(len(PASSING))))
def test_these_pass(data: bytes) -> None:
    assert isinstance(GATE.judge(data), Passed)


@pytest.mark.parametrize(("data", "status"), REFUSED, ids=map(str, range(len(REFUSED))))
def test_these_do_not_pass(data: bytes, status: int) -> None:
    verdict = GATE.judge(data)
    assert isinstance(verdict, Refusal) and verdict.status == status and verdict.why


@pytest.mark.parametrize("method", ["patch", "x-y.z", "A" * 40, "a" * 40_000, "GET /" + "a" * 20_000])
def test_a_page_chooses_methods_and_paths_and_passes_by_none_of_them(method: str) -> None:
    data = http(method if "/" in method else f"{method} /", host="evil.example")
    for size in (len(data), 20_000 if "GET" in method else len(data)):
        assert not isinstance(GATE.judge(data[:size]), Passed)
    assert not isinstance(GATE.judge(b"get"), Refusal | None)


EVERYWHERE = gate_for([], [], has_any_address=True)


@pytest.mark.parametrize(
    ("data", "passes"),
    [
        (http("GET /", host="192.168.1.5:3000"), True),
        (http("GET /", host="evil.example"), False),
        (http("GET /", UPGRADE, "Origin: http://192.168.1.5:3000\r\n", host="192.168.1.5:3000"), True),
        (http("GET /", UPGRADE, "Origin: http://203.0.113.9\r\n", host="192.168.1.5:3000"), False),
    ],
)
def test_where_all_addresses_are_listened_on_any_address_is_a_host_but_not_an_origin(data: bytes, passes: bool) -> None:
    assert isinstance(EVERYWHERE.judge(data), Passed) == passes


@pytest.mark.parametrize("data", ALL, ids=map(str, range(len(ALL))))
def test_what_came_so_far_is_never_judged_otherwise_than_the_whole(data: bytes) -> None:
    whole = GATE.judge(data)
    for size in {*range(min(len(data), 200)), len(data) // 2, len(data) - 1}:
        part = GATE.judge(data[:size])
        assert part is None or isinstance(part, Refusal) == isinstance(whole, Refusal), data[:size]


@given(st.one_of(st.binary(max_size=300), st.binary(max_size=300).map(lambda rest: b"\x16\x03\x01" + rest)))
def test_any_bytes_get_a_verdict(data: bytes) -> None:
    assert isinstance(Gate().judge(data), Passed | Refusal | None)


@pytest.mark.parametrize("origin", ["evil", "ftp://x", "https://x/path", "https://", "null"])
def test_an_origin_that_is_none_is_a_mistake(origin: str) -> None:
    with pytest.raises(ValueError, match="origin"):
        gate_for([], [origin])
