"""Bytes through the endpoint proxy: bodies, streams, early answers, broken connections, WebSockets."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Sequence

import httpx
import pytest
import websockets
from websockets.typing import Subprotocol

from tests.localcloud.endpoint import OK, Endpoint, answer_ok, guest_server, read_answer


@pytest.mark.parametrize("is_chunked", [False, True])
async def test_bodies_arrive_byte_exact_both_ways(endpoint: Endpoint, is_chunked: bool) -> None:
    content = os.urandom(3_000_001)

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        assert (b"chunked" in head) == is_chunked
        writer.write(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
            if is_chunked
            else b"HTTP/1.1 200 OK\r\nContent-Length: 3000001\r\n\r\n"
        )
        end = b"\r\n0\r\n\r\n"
        seen = b""
        left = len(content)
        while (left > 0 and not is_chunked) or (is_chunked and not seen.endswith(end)):
            data = await reader.read(65536)
            left -= len(data)
            seen = (seen + data)[-len(end) :]
            writer.write(data)
            await writer.drain()

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(content), 77_777):
            yield content[start : start + 77_777]

    async with guest_server(echo) as port, httpx.AsyncClient(verify=endpoint.context(), timeout=20) as http:
        headers = {"X-aws-proxy-auth": endpoint.token, "X-aws-proxy-port": str(port)}
        reply = await http.post(
            f"https://{endpoint.address}/", headers=headers, content=pieces() if is_chunked else content
        )
    assert hashlib.sha256(reply.content).digest() == hashlib.sha256(content).digest()


async def test_a_stream_arrives_piece_by_piece(endpoint: Endpoint) -> None:
    go_on = asyncio.Event()

    async def stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
        await go_on.wait()
        writer.write(b"1\r\nb\r\n0\r\n\r\n")

    async with guest_server(stream) as port, asyncio.timeout(10), endpoint.connected() as (reader, writer):
        writer.write(endpoint.head(port))
        assert (await reader.readuntil(b"a\r\n")).endswith(b"1\r\na\r\n")
        go_on.set()
        assert await reader.readuntil(b"0\r\n\r\n") == b"1\r\nb\r\n0\r\n\r\n"


async def test_a_body_without_a_length_ends_with_the_connection(endpoint: Endpoint) -> None:
    async def old_style(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.0 200 OK\r\n\r\nall of it")

    async with guest_server(old_style) as port, asyncio.timeout(10), endpoint.connected() as (reader, writer):
        writer.write(endpoint.head(port))
        assert await reader.read() == b"HTTP/1.0 200 OK\r\n\r\nall of it"


async def test_early_answers_reach_clients_that_still_send(endpoint: Endpoint) -> None:
    """However the guest closes: with all of the request unread, in the middle of it, with little or more to say."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        _, taken, said, _ = head.split(b"/", 3)[:4]
        if int(taken):
            await reader.readexactly(int(taken))
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % int(said))
        writer.write(b"b" * int(said))
        await writer.drain()

    async with guest_server(refuse) as port, httpx.AsyncClient(verify=endpoint.context(), timeout=60) as http:
        headers = {"X-aws-proxy-auth": endpoint.token, "X-aws-proxy-port": str(port)}

        async def send(taken: int, said: int) -> tuple[int, bytes]:
            url = f"https://{endpoint.address}/{taken}/{said}/"
            reply = await http.post(url, headers=headers, content=b"x" * 5_000_000)
            return reply.status_code, reply.content

        for taken, said in ((0, 3), (1_000_000, 3), (0, 20_000)):
            answers = await asyncio.gather(*(send(taken, said) for _ in range(8)))
            assert answers == [(413, b"b" * said)] * 8


async def test_what_a_websocket_said_before_it_broke_off_arrives_though_the_client_still_sends(
    endpoint: Endpoint,
) -> None:
    async def leave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
        await reader.readexactly(1000)
        writer.write(b"last words")
        await writer.drain()

    async with guest_server(leave) as port, asyncio.timeout(20), endpoint.connected() as (reader, writer):
        writer.write(endpoint.head(port, "GET / HTTP/1.1", "Connection: Upgrade", "Upgrade: x"))
        await reader.readuntil(b"\r\n\r\n")
        writer.write(bytes(2_000_000))
        assert await reader.readexactly(10) == b"last words"


async def test_100_continue_is_passed_on(endpoint: Endpoint) -> None:
    async def careful(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        writer.write(
            OK if await reader.readexactly(4) == b"body" else b"HTTP/1.1 500 Lost\r\nContent-Length: 0\r\n\r\n"
        )

    async with guest_server(careful) as port, asyncio.timeout(10), endpoint.connected() as (reader, writer):
        writer.write(endpoint.head(port, "POST / HTTP/1.1", "Expect: 100-continue", "Content-Length: 4"))
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"body")
        assert await read_answer(reader) == OK


@pytest.mark.parametrize(
    "answer",
    [b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"],
)
async def test_the_answer_to_head_has_no_body_and_the_connection_goes_on(endpoint: Endpoint, answer: bytes) -> None:
    async def bodiless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(2):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            await writer.drain()

    async with guest_server(bodiless) as port, asyncio.timeout(10), endpoint.connected() as (reader, writer):
        for _ in range(2):
            writer.write(endpoint.head(port, "HEAD / HTTP/1.1"))
            assert await reader.readuntil(b"\r\n\r\n") == answer


async def test_a_client_that_leaves_is_seen_by_the_guest(endpoint: Endpoint) -> None:
    left = asyncio.Event()
    begun = asyncio.Event()

    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        begun.set()
        await reader.read()
        left.set()

    async with guest_server(wait) as port, asyncio.timeout(10):
        async with endpoint.connected() as (_, writer):
            writer.write(endpoint.head(port))
            await begun.wait()
        await left.wait()


async def test_a_guest_that_breaks_off_is_seen_by_the_client(endpoint: Endpoint) -> None:
    async def break_off(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this")
        await writer.drain()

    async with guest_server(break_off) as port, httpx.AsyncClient(verify=endpoint.context(), timeout=10) as http:
        headers = {"X-aws-proxy-auth": endpoint.token, "X-aws-proxy-port": str(port)}
        with pytest.raises(httpx.TransportError):
            await http.get(f"https://{endpoint.address}/", headers=headers)


# WebSockets


async def _echo(connection: websockets.ServerConnection) -> None:
    async for message in connection:
        await connection.send(message)


@pytest.mark.parametrize("own", [[], ["chat"], ["chat", "v2"]])
@pytest.mark.parametrize("guest_chooses", [False, True])
async def test_the_browsers_form_of_a_websocket_works(endpoint: Endpoint, own: list[str], guest_chooses: bool) -> None:
    offered: list[str | None] = []

    def select(connection: websockets.ServerConnection, subprotocols: Sequence[Subprotocol]) -> Subprotocol | None:
        offered.append(connection.request.headers.get("Sec-WebSocket-Protocol") if connection.request else None)
        return subprotocols[0] if guest_chooses and subprotocols else None

    async with websockets.serve(_echo, "127.0.0.1", 0, select_subprotocol=select) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        wanted = [
            "lambda-microvms",
            f"lambda-microvms.authentication.{endpoint.token}",
            f"lambda-microvms.port.{port}",
            *own,
        ]
        async with websockets.connect(
            f"wss://{endpoint.address}/",
            subprotocols=[Subprotocol(item) for item in wanted],
            ssl=endpoint.context(),
            max_size=None,
        ) as socket:
            for message in ("text", b"\x00binary", "", "x" * 300_000):
                await socket.send(message)
                assert await socket.recv() == message
            assert socket.subprotocol == (own[0] if own and guest_chooses else "lambda-microvms")
    assert offered == [", ".join(own) or None]


async def test_a_websocket_with_header_credentials_works(endpoint: Endpoint) -> None:
    async with websockets.serve(_echo, "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        headers = {"X-aws-proxy-auth": endpoint.token, "X-aws-proxy-port": str(port)}
        async with websockets.connect(
            f"wss://{endpoint.address}/", additional_headers=headers, ssl=endpoint.context()
        ) as socket:
            await socket.send("hello")
            assert await socket.recv() == "hello"


@pytest.mark.parametrize(
    "wanted",
    [
        ["lambda-microvms"],
        ["lambda-microvms", "lambda-microvms.authentication.bad", "lambda-microvms.port.{port}"],
        ["lambda-microvms.authentication.{token}", "lambda-microvms.port.{port}"],
        ["lambda-microvms", "lambda-microvms.authentication.{token}", "lambda-microvms.port.0"],
    ],
)
async def test_a_websocket_without_good_credentials_fails(endpoint: Endpoint, wanted: list[str]) -> None:
    async with websockets.serve(_echo, "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        filled = [Subprotocol(item.format(token=endpoint.token, port=port)) for item in wanted]
        with pytest.raises(websockets.InvalidStatus):
            await websockets.connect(f"wss://{endpoint.address}/", subprotocols=filled, ssl=endpoint.context())


async def test_a_guest_without_websockets_answers_as_http(endpoint: Endpoint) -> None:
    async with guest_server(answer_ok) as port, asyncio.timeout(10), endpoint.connected() as (reader, writer):
        upgrade = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: x", "Sec-WebSocket-Version: 13")
        for _ in range(2):
            writer.write(endpoint.head(port, "GET / HTTP/1.1", *upgrade))
            assert await read_answer(reader) == OK


async def test_hundreds_of_connections_at_once_are_all_answered(endpoint: Endpoint) -> None:
    async with guest_server(answer_ok) as port:
        answers = await asyncio.gather(*(endpoint.ask(endpoint.head(port)) for _ in range(200)))
    assert answers == [OK] * 200
