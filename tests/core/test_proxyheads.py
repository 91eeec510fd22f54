"""What a server behind an endpoint is told of a client here, and what the client is told back."""

from __future__ import annotations

import pytest

from sbxtui.core.heads import parse_request, parse_response
from sbxtui.core.proxyheads import Passport, answer_back, request_out

PASSPORT = Passport(b"abc.example.on.aws", 5173, b"jwe..x")
UPGRADE = ("Connection: keep-alive, Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: k")


def request(*fields: str, host: str = "localhost:8080") -> bytes:
    return "\r\n".join(("GET /a%2F?b HTTP/1.1", f"Host: {host}", *fields, "", "")).encode()


def out(*fields: str) -> list[bytes]:
    return request_out(parse_request(request(*fields)), PASSPORT).split(b"\r\n")


def back(head: bytes, *fields: str, is_kept: bool = True) -> list[bytes]:
    asked = parse_request(request(*fields))
    return answer_back(parse_response(head, b"GET"), asked, PASSPORT, is_kept).split(b"\r\n")


def test_the_endpoint_gets_its_name_the_token_and_who_asked() -> None:
    lines = out("Accept: */*", "TE: trailers", "Connection: X-Hop, close", "X-Hop: 1", "Keep-Alive: timeout=5")
    assert lines == [
        b"GET /a%2F?b HTTP/1.1",
        b"Accept: */*",
        b"Host: abc.example.on.aws",
        b"X-Forwarded-Host: localhost:8080",
        b"X-Forwarded-Proto: http",
        b"X-Forwarded-For: 127.0.0.1",
        b"X-aws-proxy-auth: jwe..x",
        b"X-aws-proxy-port: 5173",
        b"",
        b"",
    ]


@pytest.mark.parametrize(
    "forged",
    ["X-aws-proxy-auth: mine", "x-AWS-proxy-port: 9000", "X-Forwarded-Host: bank.example", "Forwarded: for=1.2.3.4"],
)
def test_what_a_page_says_in_our_place_is_dropped(forged: str) -> None:
    assert forged.encode() not in out(forged) and len(out(forged)) == len(out())


def test_a_page_of_this_origin_is_one_of_the_endpoints_there_and_another_stays_another() -> None:
    own = out("Origin: http://localhost:8080", "Referer: http://localhost:8080/x")
    assert b"Origin: http://abc.example.on.aws" in own and b"Referer: http://abc.example.on.aws/x" in own
    # Servers compare the two, and take it for another site's page where they differ.
    assert b"X-Forwarded-Host: abc.example.on.aws" in own
    for other in ("Origin: http://localhost:8081", "Origin: http://localhost:80801", "Origin: null"):
        assert other.encode() in out(other) and b"X-Forwarded-Host: localhost:8080" in out(other)


def test_a_websocket_carries_the_token_as_a_subprotocol_before_its_own() -> None:
    lines = out(*UPGRADE, "Sec-WebSocket-Protocol: vite-hmr, lambda-microvms.port.9000")
    offered = b"lambda-microvms, lambda-microvms.authentication.jwe..x, lambda-microvms.port.5173, vite-hmr"
    assert b"Sec-WebSocket-Protocol: " + offered in lines
    assert not any(line.lower().startswith(b"x-aws") for line in lines)
    assert b"Upgrade: websocket" in lines and b"Connection: Upgrade" in lines


def test_the_client_hears_nothing_of_the_endpoint() -> None:
    switch = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n"
    assert back(switch + b"Sec-WebSocket-Protocol: lambda-microvms\r\n\r\n", *UPGRADE) == [
        b"HTTP/1.1 101 Switching Protocols",
        b"Upgrade: websocket",
        b"Connection: Upgrade",
        b"",
        b"",
    ]
    assert b"Sec-WebSocket-Protocol: vite-hmr" in back(switch + b"Sec-WebSocket-Protocol: vite-hmr\r\n\r\n", *UPGRADE)
    assert b"X-aws-proxy-auth: t" not in back(b"HTTP/1.1 200 OK\r\nX-aws-proxy-auth: t\r\n\r\n")


@pytest.mark.parametrize(
    ("location", "shown"),
    [
        (b"https://abc.example.on.aws/x?y", b"http://localhost:8080/x?y"),
        (b"http://ABC.example.on.aws", b"http://localhost:8080"),
        (b"https://abc.example.on.aws.evil.example/", b"https://abc.example.on.aws.evil.example/"),
        (
            b"https://login.example/?next=https://abc.example.on.aws/",
            b"https://login.example/?next=https://abc.example.on.aws/",
        ),
        (b"/relative", b"/relative"),
    ],
)
def test_a_redirect_leaves_the_endpoints_name_only(location: bytes, shown: bytes) -> None:
    assert b"Location: " + shown in back(b"HTTP/1.1 302 Found\r\nLocation: %b\r\nContent-Length: 0\r\n\r\n" % location)


def test_two_cookies_stay_two_and_a_connection_that_ends_says_so() -> None:
    lines = back(
        b"HTTP/1.1 200 OK\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\nConnection: keep-alive\r\n\r\n", is_kept=False
    )
    assert lines[1:] == [b"Set-Cookie: a=1", b"Set-Cookie: b=2", b"Connection: close", b"", b""]


def test_the_token_is_in_no_text_of_it() -> None:
    assert "jwe" not in repr(PASSPORT)
