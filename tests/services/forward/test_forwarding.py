"""Bytes through a forward: whole, in order and both ways, whatever becomes of the connection or its neighbours."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator

import pytest
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection
from websockets.asyncio.server import serve as websockets_serve

from sbxguest.mux import frames
from sbxtui.guest.tunnel import TunnelState
from tests.support.forwarding import echo, forwarded, serving
from tests.support.guest_process import GuestProcess
from tests.support.relay import running_relay

LIMIT_S = 60
MIB = 1024 * 1024


@pytest.fixture(autouse=True)
async def limit() -> AsyncIterator[None]:
    async with asyncio.timeout(LIMIT_S):
        yield


async def sink(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Take everything, and answer its digest behind its end."""
    digest = hashlib.sha256()
    while data := await reader.read(256 * 1024):
        digest.update(data)
    writer.write(digest.digest())


def block(number: int) -> bytes:
    return hashlib.sha256(b"%d" % number).digest() * 2048


async def source(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """As many blocks as the first line asks for."""
    for number in range(int(await reader.readline())):
        writer.write(block(number))
        await writer.drain()


async def download(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, blocks: int) -> bool:
    writer.write(b"%d\n" % blocks)
    got, wanted = hashlib.sha256(), hashlib.sha256()
    for number in range(blocks):
        wanted.update(block(number))
    while data := await reader.read(256 * 1024):
        got.update(data)
    return got.digest() == wanted.digest()


async def test_bytes_go_both_ways_and_each_direction_ends_by_itself(guest: GuestProcess) -> None:
    async with serving(sink) as port, forwarded(guest.url, port) as forward:
        for host in ("127.0.0.1", "::1"):
            reader, writer = await forward.connect(host)
            data = bytes(range(256)) * 12_345
            writer.write(data)
            writer.write_eof()
            assert await reader.read() == hashlib.sha256(data).digest()
            writer.close()
        assert forward.status.sent_bytes == 2 * len(data) and forward.status.received_bytes == 64


async def test_a_server_that_ends_first_still_hears_its_client(guest: GuestProcess) -> None:
    heard: asyncio.Queue[bytes] = asyncio.Queue()

    async def ends_first(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"bye")
        writer.write_eof()
        heard.put_nowait(await reader.read())

    async with serving(ends_first) as port, forwarded(guest.url, port) as forward:
        reader, writer = await forward.connect()
        assert await reader.read() == b"bye"
        writer.write(b"still here")
        writer.write_eof()
        assert await heard.get() == b"still here"


async def test_a_server_that_speaks_first_is_heard(guest: GuestProcess) -> None:
    async def greets(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-x\r\n")
        writer.write(await reader.readline())

    async with serving(greets, "::1") as port, forwarded(guest.url, port) as forward:
        reader, writer = await forward.connect()
        assert await reader.readline() == b"SSH-2.0-x\r\n"
        writer.write(b"SSH-2.0-y\r\n")
        assert await reader.read() == b"SSH-2.0-y\r\n"


@pytest.mark.long
async def test_25_cuts_in_100_mb_lose_and_double_nothing(guest: GuestProcess) -> None:
    async with serving(source) as port, running_relay(guest.port) as relay, forwarded(relay.url, port) as forward:
        relay.cut_after_bytes = 4 * MIB
        assert await download(*await forward.connect(), blocks=1600)
        assert relay.cuts >= 25
        assert forward.status.received_bytes == 1600 * 65_536


async def test_cuts_of_an_upload_lose_and_double_nothing(guest: GuestProcess) -> None:
    async with serving(echo) as port, running_relay(guest.port) as relay, forwarded(relay.url, port) as forward:
        relay.cut_after_bytes = MIB
        reader, writer = await forward.connect()
        digest = hashlib.sha256()

        async def write() -> None:
            for number in range(80):
                digest.update(block(number))
                writer.write(block(number))
                await writer.drain()
            writer.write_eof()

        writing = asyncio.create_task(write())
        got = hashlib.sha256()
        while data := await reader.read(256 * 1024):
            got.update(data)
        await writing
        assert (got.digest(), relay.cuts >= 4) == (digest.digest(), True)


async def test_a_stalled_reader_and_a_bulk_transfer_hold_up_nobody_else(guest: GuestProcess) -> None:
    async with serving(source) as bulk, serving(echo) as small, forwarded(guest.url, bulk) as forward:
        stalled_reader, stalled = await forward.connect()
        stalled.write(b"400\n")
        await stalled_reader.readexactly(1)
        loading = asyncio.create_task(download(*await forward.connect(), blocks=400))
        other = asyncio.create_task(_echoes(guest, small, 20))
        assert await download(*await forward.connect(), blocks=3)
        await other
        assert await loading
        waiting = [one for one in forward.tunnel.mux.streams.values() if one.incoming.inbox]
        assert len(waiting) == 1 and sum(map(len, waiting[0].incoming.inbox)) <= frames.WINDOW_BYTES
        stalled.transport.abort()


async def _echoes(guest: GuestProcess, port: int, count: int) -> None:
    async with forwarded(guest.url, port) as forward:
        for _ in range(count):
            reader, writer = await forward.connect()
            writer.write(b"ping\n")
            assert await reader.readexactly(5) == b"ping\n"
            writer.close()


async def test_64_connections_at_once_are_served_and_none_is_left(guest: GuestProcess) -> None:
    async with serving(echo) as port, forwarded(guest.url, port) as forward:

        async def one(number: int) -> None:
            reader, writer = await forward.connect()
            writer.write(b"%d" % number)
            writer.write_eof()
            assert await reader.read() == b"%d" % number
            writer.close()
            await writer.wait_closed()

        await asyncio.gather(*(one(number) for number in range(64)))
        assert forward.status.accepted == 64
        await _until_none_is_open(forward.tunnel.mux.streams)


async def _until_none_is_open(streams: object) -> None:
    while streams:
        await asyncio.sleep(0.01)


@pytest.mark.long
async def test_1000_short_connections_of_which_a_third_are_given_up_leave_nothing(guest: GuestProcess) -> None:
    async with serving(echo) as port, forwarded(guest.url, port) as forward:

        async def some(numbers: range) -> None:
            for number in numbers:
                reader, writer = await forward.connect()
                writer.write(b"%d\n" % number)
                if number % 3 == 0:
                    writer.transport.abort()
                    continue
                assert await reader.readline() == b"%d\n" % number
                writer.close()

        await asyncio.gather(*(some(range(start, 1000, 4)) for start in range(4)))
        assert forward.status.accepted == 1000
        await _until_none_is_open(forward.tunnel.mux.streams)


async def test_a_client_that_goes_away_in_the_middle_is_told_to_the_server(guest: GuestProcess) -> None:
    gone = asyncio.Event()

    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        with contextlib.suppress(OSError):
            while True:
                writer.write(bytes(65_536))
                await writer.drain()
        gone.set()

    async with serving(endless) as port, forwarded(guest.url, port) as forward:
        for _ in range(5):
            gone.clear()
            reader, writer = await forward.connect()
            writer.write(b"go\n")
            await reader.readexactly(100_000)
            writer.transport.abort()
            await gone.wait()
        await _until_none_is_open(forward.tunnel.mux.streams)


async def test_a_port_nobody_listens_on_closes_the_connection_and_is_told_once(guest: GuestProcess) -> None:
    async with serving(echo) as port, forwarded(guest.url, port) as forward:
        pass
    async with forwarded(guest.url, port) as forward:
        for _ in range(2):
            reader, _ = await forward.connect()
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
        assert forward.trouble == [f"nothing listens on port {port} in the sandbox"]
        assert forward.status.last_error == forward.trouble[0]


async def test_a_server_that_is_started_again_is_found_again(guest: GuestProcess) -> None:
    async with serving(echo) as port:
        pass
    async with forwarded(guest.url, port) as forward:
        reader, writer = await forward.connect()
        server = await asyncio.start_server(echo, "127.0.0.1", port)
        async with server:
            writer.write(b"here\n")
            assert await reader.readline() == b"here\n"
            writer.close()


async def test_the_guests_own_port_is_refused_inside_too(guest: GuestProcess) -> None:
    async with forwarded(guest.url, guest.port) as forward:
        reader, _ = await forward.connect()
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
        assert forward.trouble == [f"port {guest.port} of the sandbox: port {guest.port} is the guest's own"]


async def test_a_guest_whose_server_was_killed_resets_what_it_lost_and_serves_the_next(guest: GuestProcess) -> None:
    async with serving(echo) as port, forwarded(guest.url, port) as forward:
        reader, writer = await forward.connect()
        writer.write(b"a\n")
        await reader.readline()
        await guest.kill_server()
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
        reader, writer = await forward.connect()
        writer.write(b"b\n")
        assert await reader.readline() == b"b\n"


async def test_a_suspended_sandbox_is_left_alone_until_this_machine_has_a_byte(guest: GuestProcess) -> None:
    async with serving(echo) as port, running_relay(guest.port) as relay, forwarded(relay.url, port) as forward:
        reader, writer = await forward.connect()
        writer.write(b"before\n")
        assert await reader.readline() == b"before\n"
        made = relay.connections
        forward.asleep.set()
        relay.cut()
        await forward.until(TunnelState.PARKED)
        _, idle = await forward.connect()
        assert relay.connections == made
        writer.write(b"after\n")
        assert await reader.readline() == b"after\n"
        assert relay.connections == made + 1
        idle.close()


async def test_a_link_that_went_deaf_is_noticed_told_and_replaced(
    guest: GuestProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sbxtui.guest.tunnel._SILENCE_S", 0.5)
    async with serving(echo) as port, running_relay(guest.port) as relay, forwarded(relay.url, port) as forward:
        reader, writer = await forward.connect()
        writer.write(b"a\n")
        assert await reader.readline() == b"a\n"
        relay.is_deaf = True
        writer.write(b"b\n")
        await forward.until(TunnelState.DOWN)
        relay.is_deaf = False
        assert await reader.readline() == b"b\n"


async def test_a_tunnel_that_nobody_uses_is_closed_and_dialled_again_when_it_is_needed(
    guest: GuestProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sbxtui.guest.tunnel._SILENCE_S", 0.1)
    monkeypatch.setattr("sbxtui.guest.tunnel._IDLE_S", 0.3)
    async with serving(echo) as port, running_relay(guest.port) as relay, forwarded(relay.url, port) as forward:
        for dialled in (1, 2):
            reader, writer = await forward.connect()
            writer.write(b"a\n")
            assert await reader.readline() == b"a\n"
            writer.close()
            await forward.until(TunnelState.IDLE)
            assert relay.connections == dialled
            forward.states.clear()


async def test_a_websocket_with_large_messages_lives_through_cuts(guest: GuestProcess) -> None:
    async def answer(connection: ServerConnection) -> None:
        async for message in connection:
            await connection.send(message)

    async with websockets_serve(answer, "127.0.0.1", 0, max_size=None) as server:
        port = server.sockets[0].getsockname()[1]
        async with running_relay(guest.port) as relay, forwarded(relay.url, port) as forward:
            url = f"ws://localhost:{forward.local_port}/"
            async with connect(url, max_size=None, ping_interval=None, proxy=None, compression=None) as client:
                for number in range(3):
                    relay.cut_after_bytes = 3 * MIB
                    message = block(number) * 128
                    await client.send(message)
                    assert await client.recv() == message
                    relay.cut()
                assert relay.cuts >= 6


@pytest.mark.parametrize("status", [403, 429, 502])
async def test_what_an_endpoint_answers_for_a_while_is_told_and_got_over(guest: GuestProcess, status: int) -> None:
    async with serving(echo) as port, running_relay(guest.port) as relay, forwarded(relay.url, port) as forward:
        relay.answers += [status] * 2
        reader, writer = await forward.connect()
        writer.write(b"x\n")
        assert await reader.readline() == b"x\n"
        reasons = [reason for state, reason in forward.states if state is TunnelState.DOWN]
        assert len(reasons) >= 1 and all(reasons)


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", 421),
        (b"GET / HTTP/1.1\r\nHost: localhost.evil.example\r\n\r\n", 421),
        (b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (
            b"POST / HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: cross-site\r\nOrigin: http://evil.example\r\n\r\n",
            403,
        ),
        (
            b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Origin: http://evil.example\r\n\r\n",
            403,
        ),
    ],
)
async def test_a_foreign_page_is_refused_before_the_sandbox_has_a_byte(
    guest: GuestProcess, head: bytes, status: int
) -> None:
    got: asyncio.Queue[bytes] = asyncio.Queue()

    async def listen(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        got.put_nowait(await reader.read(1))

    async with serving(listen) as port, forwarded(guest.url, port) as forward:
        reader, writer = await forward.connect()
        writer.write(head)
        answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 %d " % status), answer
        assert got.empty() or await got.get() == b""
        assert forward.status.last_error.startswith("refused: ")


async def test_a_page_of_this_machine_passes_under_any_of_its_names(guest: GuestProcess) -> None:
    async with serving(echo) as port, forwarded(guest.url, port) as forward:
        for host in (b"localhost:5173", b"127.0.0.1", b"[::1]:80", b"app-3000.localhost:8080"):
            reader, writer = await forward.connect()
            head = b"GET / HTTP/1.1\r\nHost: %b\r\nOrigin: http://localhost:1\r\n\r\n" % host
            writer.write(head[:20])
            writer.write(head[20:])
            assert await reader.readexactly(len(head)) == head
            writer.close()
