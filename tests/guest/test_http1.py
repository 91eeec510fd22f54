"""HTTP to a guest, which may answer anything: framing, cuts, refusals, reuse of connections, back-pressure."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from sbxtui.guest.http1 import Answer, HttpError, HttpTimeout, Patience
from sbxtui.guest.pool import Pool, address_of

LIMIT_S = 30
MIB = 1024 * 1024
PATIENCE = Patience(answer_s=LIMIT_S, send_s=LIMIT_S)
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"

Peer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def pool_to(peer: Peer) -> AsyncIterator[Pool]:
    """A pool whose address is served by `peer`, called once for each connection."""
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        try:
            await peer(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    pool = Pool(address_of(f"http://127.0.0.1:{port}", verify=False))
    try:
        async with asyncio.timeout(LIMIT_S), server:
            yield pool
            await pool.close()
            for writer in writers:
                writer.close()
    finally:
        await pool.close()


def saying(answer: bytes, *, then_closes: bool = False) -> Peer:
    """A server that answers every request with these bytes."""

    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            await writer.drain()
            if then_closes:
                writer.close()
                return

    return peer


async def body_of(answer: Answer) -> bytes:
    return b"".join([piece async for piece in answer.pieces()])


async def get(pool: Pool, *, method: str = "GET", patience: Patience = PATIENCE) -> tuple[int, bytes]:
    async with pool.stream(method, "/", {}, None, patience) as answer:
        return answer.status, await body_of(answer)


@pytest.mark.parametrize(
    ("answer", "then_closes", "body"),
    [
        (OK, False, b"ok"),
        (
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n3;x=y\r\nay!\r\n0\r\na: b\r\n\r\n",
            False,
            b"okay!",
        ),
        (b"HTTP/1.1 200 OK\r\n\r\nuntil the end", True, b"until the end"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", False, b""),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\na: b\r\n\r\n" + OK, False, b"ok"),
        (b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok", True, b"ok"),
    ],
)
async def test_every_framing_of_a_body_is_read_to_its_end(answer: bytes, then_closes: bool, body: bytes) -> None:
    async with pool_to(saying(answer, then_closes=then_closes)) as pool:
        assert (await get(pool))[1] == body
        assert (await get(pool))[1] == body


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"SSH-2.0-OpenSSH_9.2\r\n", id="ssh"),
        pytest.param(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nok", id="short"),
        pytest.param(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 9\r\n\r\nok", id="two-lengths"),
        pytest.param(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n", id="no-last-chunk"),
        pytest.param(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nok\r\n", id="no-chunk"),
        pytest.param(b"HTTP/1.1 101 Switch\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n", id="upgrade"),
        pytest.param(b"HTTP/1.1 200 OK\r\n" + b"a: bcdefgh\r\n" * 20_000 + b"\r\n", id="many-headers"),
        pytest.param(b"HTTP/1.1 200 OK\r\na: " + b"b" * 100_000, id="long-header"),
        pytest.param(b"HTTP/1.1 200 O", id="half-a-line"),
        pytest.param(CHUNKED + b"2\r\nok\r\n0\r\na: " + b"b" * 300_000, id="long-trailer"),
        pytest.param(CHUNKED + b"2\r\nok\r\n0\r\n" + b"a: b\r\n" * 200_000 + b"\r\n", id="many-trailers"),
        pytest.param(CHUNKED + b"1;" + b"x" * 600_000, id="long-chunk-extension"),
    ],
)
async def test_what_is_cut_off_or_no_http_is_an_error_and_never_a_result(answer: bytes) -> None:
    async with pool_to(saying(answer, then_closes=True)) as pool:
        with pytest.raises(HttpError):
            await get(pool)


async def test_a_second_answer_that_nobody_asked_for_spoils_the_connection_and_not_the_next_request() -> None:
    async with pool_to(saying(OK + b"HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n")) as pool:
        for _ in range(3):
            try:
                assert await get(pool) == (200, b"ok")
            except HttpError:
                continue


async def test_headers_are_found_by_lower_case_name_and_joined() -> None:
    async with (
        pool_to(saying(b"HTTP/1.1 200 OK\r\nX-A: 1\r\nx-a: 2\r\nContent-Length: 0\r\n\r\n")) as pool,
        pool.stream("GET", "/", {}, None, PATIENCE) as answer,
    ):
        assert answer.headers == {"x-a": "1, 2", "content-length": "0"}


async def test_an_answer_to_head_has_no_body_whatever_its_length_says() -> None:
    async with pool_to(saying(b"HTTP/1.1 200 OK\r\ncontent-length: 700\r\n\r\n")) as pool:
        assert await get(pool, method="HEAD") == (200, b"")


async def test_a_silent_server_is_a_timeout_and_its_connection_is_not_used_again() -> None:
    connections: list[int] = []

    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(1)
        await reader.read()

    async with pool_to(peer) as pool:
        for _ in range(2):
            with pytest.raises(HttpTimeout):
                await get(pool, patience=Patience(answer_s=0.05))
        assert len(connections) == 2


async def test_one_connection_serves_many_requests_and_one_that_was_closed_meanwhile_is_replaced() -> None:
    connections: list[asyncio.StreamWriter] = []

    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        await saying(OK)(reader, writer)

    async with pool_to(peer) as pool:
        for _ in range(20):
            await get(pool)
        assert len(connections) == 1
        connections[0].close()
        await connections[0].wait_closed()
        for _ in range(100):
            await asyncio.sleep(0)
        assert await get(pool) == (200, b"ok")
        assert len(connections) == 2


async def test_six_requests_go_at_once_and_the_seventh_waits_for_one_to_end() -> None:
    waiting: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()

    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await reader.readuntil(b"\r\n\r\n")
            waiting.put_nowait(writer)

    async with pool_to(peer) as pool:
        asked = [asyncio.create_task(get(pool)) for _ in range(7)]
        first = [await waiting.get() for _ in range(6)]
        assert waiting.empty()
        first[0].write(OK)
        seventh = await waiting.get()
        for writer in (*first[1:], seventh):
            writer.write(OK)
        assert await asyncio.gather(*asked) == [(200, b"ok")] * 7


async def test_an_upload_that_is_refused_early_is_told_why_and_not_sent_to_its_end() -> None:
    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\ncontent-length: 4\r\n\r\nfull")
        await reader.read(MIB)

    pieces = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal pieces
        while True:
            pieces += 1
            yield bytes(MIB)

    async with pool_to(peer) as pool, pool.stream("PUT", "/", {}, endless(), PATIENCE) as answer:
        assert (answer.status, await body_of(answer)) == (413, b"full")
    assert pieces < 100


async def test_a_body_whose_source_fails_fails_the_request_with_that_error() -> None:
    async def failing() -> AsyncIterator[bytes]:
        yield b"some"
        raise PermissionError("the file")

    async with pool_to(saying(b"")) as pool:
        with pytest.raises(PermissionError):
            async with pool.stream("PUT", "/", {}, failing(), PATIENCE):
                pass


@pytest.mark.parametrize("length", [0, 1, 3 * MIB])
@pytest.mark.parametrize("has_length", [True, False])
async def test_a_streamed_body_arrives_whole(length: int, has_length: bool) -> None:
    content = bytes(range(256)) * (length // 256) or b"x" * length

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, length, 100_000):
            yield content[start : start + 100_000]
            yield b""

    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        received = await reader.readexactly(length) if has_length else await _unchunked(reader)
        assert (b"chunked" in head) is not has_length
        writer.write(OK if received == content else b"HTTP/1.1 400 Bad\r\ncontent-length: 0\r\n\r\n")

    headers = {"content-length": str(length)} if has_length else {}
    async with pool_to(peer) as pool, pool.stream("PUT", "/", headers, pieces(), PATIENCE) as answer:
        assert answer.status == 200


async def _unchunked(reader: asyncio.StreamReader) -> bytes:
    received = b""
    while size := int(await reader.readuntil(b"\r\n"), 16):
        received += (await reader.readexactly(size + 2))[:-2]
    await reader.readexactly(2)
    return received


async def test_a_reader_that_takes_its_time_holds_the_sender_up() -> None:
    sent_bytes = 0

    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent_bytes
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % (200 * MIB))
        for _ in range(200):
            writer.write(bytes(MIB))
            await writer.drain()
            sent_bytes += MIB

    async with pool_to(peer) as pool, pool.stream("GET", "/", {}, None, PATIENCE) as answer:
        pieces = answer.pieces()
        received = len(await anext(pieces))
        before = -1
        while before != sent_bytes:
            before = sent_bytes
            for _ in range(1000):
                await asyncio.sleep(0)
        assert sent_bytes < 50 * MIB
        async for piece in pieces:
            received += len(piece)
            assert len(piece) < 8 * MIB
        assert received == 200 * MIB


async def test_leaving_early_and_cancelling_end_the_connection_and_free_its_place() -> None:
    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nsome")
        await reader.read()

    async with pool_to(peer) as pool:
        for _ in range(10):
            async with pool.stream("GET", "/", {}, None, PATIENCE) as answer:
                assert answer.status == 200
            task = asyncio.create_task(get(pool))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])


@pytest.mark.parametrize(
    ("target", "headers"),
    [("/a b", {}), ("/\r\nx: y", {}), ("/", {"a": "b\r\nc: d"}), ("/", {"a": "\0"}), ("/", {"a": "\u20ac"})],
)
async def test_a_request_cannot_be_made_to_carry_another_line(target: str, headers: dict[str, str]) -> None:
    async with pool_to(saying(OK)) as pool:
        with pytest.raises(HttpError):
            async with pool.stream("GET", target, headers, None, PATIENCE):
                pass


@pytest.mark.parametrize(
    "endpoint", ["", "http://", "host:port", "http://[::1", "https:///x", "unix:/nowhere/at/all", "a" * 300 + ".b:1"]
)
async def test_an_address_where_nothing_can_be_is_an_error(endpoint: str) -> None:
    with pytest.raises(HttpError):
        await get(Pool(address_of(endpoint, verify=True)))


async def test_a_port_that_nobody_listens_on_says_so() -> None:
    async with pool_to(saying(OK)) as pool:
        pass
    with pytest.raises(HttpError, match="Connect"):
        await get(pool)


def test_tls_is_verified_unless_it_is_said_not_to() -> None:
    checked = address_of("host:1", verify=True).tls
    unchecked = address_of("host:1", verify=False).tls
    assert checked is not None and checked.verify_mode == ssl.CERT_REQUIRED and checked.check_hostname
    assert unchecked is not None and unchecked.verify_mode == ssl.CERT_NONE
    assert address_of("http://host:1", verify=True).tls is None
