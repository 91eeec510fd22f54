"""The endpoint proxy on the wire: who passes, what is refused, and that bytes arrive as they were sent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import httpx
import pytest

from sbxtui.localcloud import tokens
from sbxtui.localcloud.keys import load_or_make_keys
from tests.localcloud.endpoint import OK, Endpoint, answer_ok, guest_server, read_answer


async def test_the_guest_answers_through_the_endpoint_without_a_port_header(endpoint: Endpoint) -> None:
    async with httpx.AsyncClient(verify=endpoint.context()) as http:
        reply = await http.get(f"https://{endpoint.address}/healthz", headers={"X-aws-proxy-auth": endpoint.token})
    assert reply.status_code == 200


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1"])
async def test_tls_verifies_for_loopback_names(endpoint: Endpoint, name: str) -> None:
    async with httpx.AsyncClient(verify=endpoint.context()) as http:
        reply = await http.get(f"https://{name}:{endpoint.port}/healthz", headers={"X-aws-proxy-auth": endpoint.token})
    assert reply.status_code == 200


# What the proxy answers (fact sheet §1.5). A guest that would answer 200 listens on every port asked for.


def _expired(endpoint: Endpoint) -> str:
    keys = load_or_make_keys(endpoint.cloud.home / "local" / "keys.json")
    past = datetime.now(UTC) - timedelta(seconds=1)
    return tokens.mint(keys, tokens.Grant(endpoint.id, ((1, 65535),), past))


def _flipped(token: str) -> str:
    head, empty, nonce, ciphertext, tag = token.split(".")
    return ".".join((head, empty, nonce, ("A" if ciphertext[0] != "A" else "B") + ciphertext[1:], tag))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda e, other: "",
        lambda e, other: "x.y.z",
        lambda e, other: "....",
        lambda e, other: "é" * 10,
        lambda e, other: _flipped(e.token),
        lambda e, other: e.token + "A",
        lambda e, other: e.token[:-1],
        lambda e, other: e.token.replace(".", ".AAAA", 1),
        lambda e, other: "A" * 9000,
        lambda e, other: _expired(e),
        lambda e, other: other.token,
    ],
)
async def test_without_a_valid_token_nobody_passes(
    endpoint: Endpoint, other_sandbox: Endpoint, spoil: Callable[[Endpoint, Endpoint], str]
) -> None:
    token = spoil(endpoint, other_sandbox)
    async with guest_server(answer_ok) as port:
        fields = f"X-aws-proxy-auth: {token}\r\n" if token else ""
        request = f"GET / HTTP/1.1\r\nHost: {endpoint.address}\r\n{fields}X-aws-proxy-port: {port}\r\n\r\n"
        answer = await endpoint.ask(request.encode())
    assert answer.startswith(b"HTTP/1.1 403 Forbidden\r\n")
    assert answer.endswith(b"\r\n\r\nRequest missing authentication")
    assert b"x-amzn-requestid: " in answer
    assert b"Cache-Control: private,no-store\r\n" in answer


async def test_two_tokens_are_none(endpoint: Endpoint) -> None:
    async with guest_server(answer_ok) as port:
        answer = await endpoint.ask(endpoint.head(port, "GET / HTTP/1.1", f"X-Aws-Proxy-Auth: {endpoint.token}"))
    assert answer.startswith(b"HTTP/1.1 403 ")


async def test_a_token_opens_its_own_ports_only(endpoint: Endpoint) -> None:
    async with guest_server(answer_ok) as port, guest_server(answer_ok) as other:
        one = endpoint.mint([{"port": port}])
        ranged = endpoint.mint([{"port": 1}, {"range": {"startPort": other, "endPort": other}}])
        assert (await endpoint.ask(endpoint.head(port, token=one))).endswith(b"ok")
        assert (await endpoint.ask(endpoint.head(other, token=ranged))).endswith(b"ok")
        for token, wanted in ((one, other), (ranged, port)):
            answer = await endpoint.ask(endpoint.head(wanted, token=token))
            assert answer.startswith(b"HTTP/1.1 403 ")
            assert answer.endswith(b"\r\n\r\nAccess to port denied")


@pytest.mark.parametrize("port", ["x", "", "0", "65536", "99999", "-1", "1e3", "8080, 8081", "٨٠"])
async def test_a_port_that_is_none_is_400(endpoint: Endpoint, port: str) -> None:
    request = endpoint.head(8080).replace(b"port: 8080", b"port: " + port.encode())
    assert (await endpoint.ask(request)).startswith(b"HTTP/1.1 400 ")


async def test_a_port_where_nothing_listens_is_502(endpoint: Endpoint) -> None:
    async with guest_server(answer_ok) as port:
        pass
    answer = await endpoint.ask(endpoint.head(port))
    assert answer.startswith(b"HTTP/1.1 502 Bad Gateway\r\n")
    assert answer.endswith(b"Content-Length: 0\r\n\r\n")


async def test_a_refused_request_leaves_the_connection_good_for_the_next(endpoint: Endpoint) -> None:
    async with guest_server(answer_ok) as port, asyncio.timeout(10), endpoint.connected() as (reader, writer):
        for token in ("bad", endpoint.token, "bad", endpoint.token):
            writer.write(endpoint.head(port, token=token))
            answer = await read_answer(reader)
            assert answer.startswith(b"HTTP/1.1 200 " if token == endpoint.token else b"HTTP/1.1 403 ")


async def test_a_foreign_host_is_refused(endpoint: Endpoint) -> None:
    request = endpoint.head(8080, "GET /healthz HTTP/1.1").replace(endpoint.address.encode(), b"evil.example", 1)
    assert (await endpoint.ask(request)).endswith(b"\r\n\r\nToken authentication failed")


async def test_the_guest_sees_no_credentials_and_our_host(endpoint: Endpoint) -> None:
    seen: list[bytes] = []

    async def keep(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(OK)

    async with guest_server(keep) as port:
        fields = ("X-AWS-Proxy-Future: 1", "X-Custom:  two words ", "Traceparent: 00-abc", "x-amzn-requestid: forged")
        await endpoint.ask(
            endpoint.head(port, "GET /a%2Fb?c=%20 HTTP/1.1", *fields).replace(b"127.0.0.1", b"LOCALHOST", 1)
        )
    (head,) = seen
    lines = head.split(b"\r\n")
    assert lines[0] == b"GET /a%2Fb?c=%20 HTTP/1.1"
    assert b"x-aws-proxy" not in head.lower()
    assert b"X-Custom: two words" in lines
    assert b"Traceparent: 00-abc" in lines
    assert f"Host: {endpoint.address}".encode() in lines
    assert head.lower().count(b"\r\nhost:") == 1
    assert head.lower().count(b"x-amzn-requestid:") == 1
    assert b"forged" not in head
    assert b"x-forwarded" not in head.lower()


# Framing: what two parsers could read in two ways never reaches the second.

SMUGGLING = {
    "both framings": ("Content-Length: 4\r\nTransfer-Encoding: chunked", b"0\r\n\r\n"),
    "two lengths": ("Content-Length: 1\r\nContent-Length: 2", b"ab"),
    "two equal lengths": ("Content-Length: 1\r\nContent-Length: 1", b"a"),
    "a list of lengths": ("Content-Length: 1, 1", b"a"),
    "a signed length": ("Content-Length: +1", b"a"),
    "a hexadecimal length": ("Content-Length: 0x1", b"a"),
    "an endless length": ("Content-Length: 99999999999999999999", b""),
    "two codings": ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", b"0\r\n\r\n"),
    "another coding": ("Transfer-Encoding: gzip, chunked", b"0\r\n\r\n"),
    "identity": ("Transfer-Encoding: identity", b"0\r\n\r\n"),
    "a coding with a tab": ("Transfer-Encoding: \x0bchunked", b"0\r\n\r\n"),
    "a blank before the colon": ("Transfer-Encoding : chunked", b"0\r\n\r\n"),
    "a folded field": ("X-A: b\r\n Transfer-Encoding: chunked", b"0\r\n\r\n"),
    "a bare line feed": ("X-A: b\nTransfer-Encoding: chunked", b"0\r\n\r\n"),
    "a bare carriage return": ("X-A: b\rTransfer-Encoding: chunked", b"0\r\n\r\n"),
    "a zero byte": ("X-A: b\x00c", b""),
    "no field name": (": b", b""),
    "a blank in a name": ("X A: b", b""),
    "two hosts": ("Host: localhost", b""),
    "a chunk size that is none": ("Transfer-Encoding: chunked", b"xyz\r\n"),
    "a negative chunk size": ("Transfer-Encoding: chunked", b"-1\r\n"),
    "a blank chunk size": ("Transfer-Encoding: chunked", b" 1\r\na\r\n0\r\n\r\n"),
    "a chunk size too long": ("Transfer-Encoding: chunked", b"1" * 17 + b"\r\n"),
    "a chunk ended by a line feed": ("Transfer-Encoding: chunked", b"1\na\r\n0\r\n\r\n"),
    "a chunk longer than its size": ("Transfer-Encoding: chunked", b"1\r\nab\r\n0\r\n\r\n"),
    "an endless chunk line": ("Transfer-Encoding: chunked", b"1;" + b"x" * 5000),
    "an endless trailer": ("Transfer-Encoding: chunked", b"0\r\n" + b"X: y\r\n" * 5000 + b"\r\n"),
}


@pytest.mark.parametrize("case", SMUGGLING)
async def test_ambiguous_framing_is_refused_and_nothing_after_it_is_a_request(endpoint: Endpoint, case: str) -> None:
    fields, body = SMUGGLING[case]
    requests: list[bytes] = []

    async def keep(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            requests.append(await reader.readuntil(b"\r\n\r\n"))

    async with guest_server(keep) as port:
        hidden = b"GET /hidden HTTP/1.1\r\nHost: localhost\r\n\r\n"
        answer = await endpoint.ask(endpoint.head(port, "POST / HTTP/1.1", fields) + body + hidden)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert not [request for request in requests if b"/hidden" in request]


@pytest.mark.parametrize(
    ("start", "status"),
    [
        ("GET /", 400),
        ("GET  / HTTP/1.1", 400),
        ("GET / HTTP/1.1 ", 400),
        ("GET http://evil.example/ HTTP/1.1", 400),
        ("CONNECT localhost:1 HTTP/1.1", 400),
        ("GET / HTTP/2.0", 505),
        ("PRI * HTTP/2.0", 505),
        ("GET /\x7f HTTP/1.1", 400),
        ("G\u00cbT / HTTP/1.1", 400),
    ],
)
async def test_a_request_line_that_is_none_is_refused(endpoint: Endpoint, start: str, status: int) -> None:
    assert (await endpoint.ask(endpoint.head(8080, start))).startswith(b"HTTP/1.1 %d " % status)


async def test_a_head_too_long_is_431(endpoint: Endpoint) -> None:
    assert (await endpoint.ask(endpoint.head(8080, "GET / HTTP/1.1", "X-A: " + "x" * 200_000))).startswith(
        b"HTTP/1.1 431 "
    )
    many = [f"X-{n}: y" for n in range(300)]
    assert (await endpoint.ask(endpoint.head(8080, "GET / HTTP/1.1", *many))).startswith(b"HTTP/1.1 431 ")


@pytest.mark.parametrize(
    ("fields", "body"),
    [
        ("Content-Length: 5", b"hello"),
        ("Transfer-Encoding: chunked", b"3;x=y\r\nhel\r\n2\r\nlo\r\n0\r\nX-T: 1\r\n\r\n"),
    ],
)
async def test_every_pipelined_request_is_checked(endpoint: Endpoint, fields: str, body: bytes) -> None:
    heads: list[bytes] = []

    async def keep(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        assert await reader.readexactly(len(body)) == body
        writer.write(OK)
        await writer.drain()
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(OK)

    async with guest_server(keep) as port, asyncio.timeout(10), endpoint.connected() as (reader, writer):
        good = endpoint.head(port, "POST /first HTTP/1.1", fields) + body
        bad = endpoint.head(port, "GET /second HTTP/1.1", token="bad")
        writer.write(good + bad + endpoint.head(port, "GET /third HTTP/1.1"))
        answers = [(await read_answer(reader)).split(b"\r\n", 1)[0] for _ in range(3)]
    assert answers == [b"HTTP/1.1 200 OK", b"HTTP/1.1 403 Forbidden", b"HTTP/1.1 200 OK"]
    assert [head.split(b" ")[1] for head in heads] == [b"/first", b"/third"]


GUEST_ANSWERS = {
    "no answer": b"",
    "no HTTP": b"SSH-2.0-OpenSSH\r\n\r\n",
    "half a head": b"HTTP/1.1 200 OK\r\nContent-",
    "both framings": b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    "a switch nobody asked for": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
    "a head too long": b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000,
    "a bare line feed": b"HTTP/1.1 200 OK\r\nX: y\nZ: a\r\n\r\n",
}


@pytest.mark.parametrize("case", GUEST_ANSWERS)
async def test_a_guests_answer_that_is_none_is_502(endpoint: Endpoint, case: str) -> None:
    async def misbehave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(GUEST_ANSWERS[case])
        await writer.drain()

    async with guest_server(misbehave) as port:
        assert (await endpoint.ask(endpoint.head(port))).startswith(b"HTTP/1.1 502 ")


async def test_forced_http2_is_502_because_only_http1_is_relayed(endpoint: Endpoint) -> None:
    async with guest_server(answer_ok) as port:
        answer = await endpoint.ask(endpoint.head(port, "GET / HTTP/1.1", "X-aws-proxy-force-h2: true"))
    assert answer.startswith(b"HTTP/1.1 502 ")
