"""The bridge as a real process between a unix socket and real loopback servers."""

from __future__ import annotations

import asyncio
import os
import select
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sbxguest import bridge

SCRIPT = Path(bridge.__file__)
WAIT_S = 20

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def running_bridge(folder: Path, env: Mapping[str, str] | None = None) -> AsyncIterator[Path]:
    path = folder / "in.sock"
    process = subprocess.Popen([sys.executable, "-I", str(SCRIPT), str(path)], env=dict(env or {}))
    try:
        async with asyncio.timeout(WAIT_S):
            while not path.exists():
                await asyncio.sleep(0.01)
        yield path
        assert process.poll() is None
    finally:
        process.terminate()
        assert process.wait(WAIT_S) == 0
    assert list(folder.glob("*.sock*")) == []


@pytest.fixture
async def relay(tmp_path: Path) -> AsyncIterator[Path]:
    async with running_bridge(tmp_path) as path:
        yield path


@asynccontextmanager
async def serving(handler: Handler, host: str = "127.0.0.1") -> AsyncIterator[int]:
    server = await asyncio.start_server(handler, host, 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def dial(path: Path, line: bytes) -> tuple[bytes, asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_unix_connection(str(path))
    writer.write(line)
    async with asyncio.timeout(WAIT_S):
        return await reader.read(1), reader, writer


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
        await writer.drain()
    writer.close()


async def count_to_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers only once the client has said its last byte."""
    total = 0
    while data := await reader.read(65_536):
        total += len(data)
    writer.write(f"{total}".encode())
    writer.close()


async def test_bytes_reach_a_port_and_come_back_unchanged(relay: Path) -> None:
    content = os.urandom(3_000_000)
    async with serving(echo) as port:
        answer, reader, writer = await dial(relay, b"%d\n" % port)
        assert answer == b"+"

        async def send() -> None:
            writer.write(content)
            await writer.drain()
            writer.write_eof()

        async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as group:
            group.create_task(send())
            received = group.create_task(reader.read())
        assert received.result() == content
        writer.close()


async def test_the_end_of_one_direction_leaves_the_other_open(relay: Path) -> None:
    async with serving(count_to_end) as port:
        _, reader, writer = await dial(relay, b"%d\n" % port)
        writer.write(b"x" * 100_000)
        writer.write_eof()
        async with asyncio.timeout(WAIT_S):
            assert await reader.read() == b"100000"
        writer.close()


async def test_bytes_sent_together_with_the_port_line_are_not_lost(relay: Path) -> None:
    async with serving(echo) as port:
        answer, reader, writer = await dial(relay, b"%d\nGET / HTTP/1.1\r\n" % port)
        assert answer == b"+"
        async with asyncio.timeout(WAIT_S):
            assert await reader.readexactly(16) == b"GET / HTTP/1.1\r\n"
        writer.close()


async def test_a_closed_port_is_refused_at_once(relay: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        answer, reader, writer = await dial(relay, b"%d\n" % unused.getsockname()[1])
        assert answer == b"-"
        assert await reader.read() == b""
        writer.close()


async def test_a_server_that_listens_on_ipv6_only_is_reached(relay: Path) -> None:
    try:
        async with serving(echo, "::1") as port:
            answer, reader, writer = await dial(relay, b"%d\n" % port)
            assert answer == b"+"
            writer.write(b"six")
            async with asyncio.timeout(WAIT_S):
                assert await reader.readexactly(3) == b"six"
            writer.close()
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")


@pytest.mark.parametrize(
    "garbage",
    [
        b"\n",
        b"0\n",
        b"65536\n",
        b"-1\n",
        b"80 \n",
        b"abc\n",
        b"99999999",
        b"\x16\x03\x01\x02\x00\x01",
        b"GET / HTTP/1.1\r\n",
    ],
)
async def test_garbage_is_refused_and_the_bridge_lives_on(relay: Path, garbage: bytes) -> None:
    answer, _, writer = await dial(relay, garbage)
    assert answer in (b"-", b"")
    writer.close()
    async with serving(echo) as port:
        answer, _, writer = await dial(relay, b"%d\n" % port)
        assert answer == b"+"
        writer.close()


async def test_a_client_that_leaves_in_the_middle_of_its_line_harms_nobody(relay: Path) -> None:
    for line in (b"", b"80", b"8080"):
        _, writer = await asyncio.open_unix_connection(str(relay))
        writer.write(line)
        writer.close()
    async with serving(echo) as port:
        answer, _, writer = await dial(relay, b"%d\n" % port)
        assert answer == b"+"
        writer.close()


async def test_two_hundred_connections_live_side_by_side(relay: Path) -> None:
    async def one(number: int, port: int) -> None:
        content = f"{number}-".encode() * 5_000
        answer, reader, writer = await dial(relay, b"%d\n" % port)
        assert answer == b"+"
        writer.write(content)
        writer.write_eof()
        assert await reader.read() == content
        writer.close()

    async with serving(echo) as port, asyncio.timeout(60), asyncio.TaskGroup() as group:
        for number in range(200):
            group.create_task(one(number, port))


async def test_a_reset_of_the_server_is_seen_by_the_client(relay: Path) -> None:
    async def reset(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    async with serving(reset) as port:
        answer, reader, writer = await dial(relay, b"%d\n" % port)
        assert answer == b"+"
        async with asyncio.timeout(WAIT_S):
            assert await reader.read() == b""
        writer.close()


async def test_a_reader_that_stops_makes_the_sender_wait_and_loses_nothing(relay: Path) -> None:
    go_on = asyncio.Event()
    received: list[bytes] = []
    done = asyncio.Event()

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await go_on.wait()
        received.append(await reader.read())
        done.set()
        writer.close()

    content = os.urandom(20_000_000)
    async with serving(slow) as port:
        _, _, writer = await dial(relay, b"%d\n" % port)
        writer.write(content)
        writer.write_eof()
        go_on.set()
        async with asyncio.timeout(WAIT_S):
            await done.wait()
        writer.close()
    assert b"".join(received) == content


async def test_a_mapped_port_leads_to_the_port_really_listened_on(tmp_path: Path) -> None:
    async with (
        serving(echo) as port,
        running_bridge(tmp_path, {"SBX_BRIDGE_MAP": f"8080={port}, junk,70000=1"}) as path,
    ):
        answer, reader, writer = await dial(path, b"8080\n")
        assert answer == b"+"
        writer.write(b"hi")
        async with asyncio.timeout(WAIT_S):
            assert await reader.readexactly(2) == b"hi"
        writer.close()


def test_a_folder_that_is_not_there_is_a_clear_error() -> None:
    done = subprocess.run(
        [sys.executable, "-I", str(SCRIPT), "/nowhere/in.sock"],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, "bridge: /nowhere/in.sock: No such file or directory\n")


def test_a_port_map_takes_pairs_of_ports_only() -> None:
    assert bridge.parse_port_map("8080=41234,9000=41235 x=1 1=x 0=5 5=0 =") == {8080: 41234, 9000: 41235}


@pytest.mark.long
async def test_a_client_that_goes_away_after_its_last_byte_frees_the_server_in_the_end(relay: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        _, _, writer = await dial(relay, b"%d\n" % listener.getsockname()[1])
        writer.write_eof()
        connection, _ = await asyncio.to_thread(listener.accept)
        with connection:
            assert await asyncio.to_thread(connection.recv, 1) == b""
            writer.close()
            poller = select.poll()
            poller.register(connection, 0)
            # The server says nothing, so only a reset can tell it that nobody is there any more.
            assert await asyncio.to_thread(poller.poll, WAIT_S * 1000) != []
