"""The way out of a sandbox: programs on its loopback, connections the host parked at the real bridge."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.guest.test_bridge import WAIT_S, dial, running_bridge

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@asynccontextmanager
async def outlet(folder: Path) -> AsyncIterator[tuple[Path, int]]:
    port = _free_port()
    async with running_bridge(folder, {"SBX_EGRESS_PORT": str(port)}) as path:
        # Its socket is there a moment before it serves; once it answers, both do.
        _, _, writer = await dial(path, b"1\n")
        writer.close()
        yield path, port


async def park(path: Path) -> Streams:
    answer, reader, writer = await dial(path, b"out\n")
    assert answer == b"+"
    return reader, writer


async def test_a_program_gets_a_parked_connection_and_bytes_go_both_ways(tmp_path: Path) -> None:
    async with outlet(tmp_path) as (path, port), asyncio.timeout(WAIT_S):
        host_reader, host_writer = await park(path)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await host_reader.readexactly(1) == b"c"
        writer.write(b"ask")
        assert await host_reader.readexactly(3) == b"ask"
        host_writer.write(b"answer")
        host_writer.write_eof()
        assert await reader.read() == b"answer"
        writer.close()
        assert await host_reader.read() == b""
        host_writer.close()


async def test_a_program_that_came_first_waits_for_the_host(tmp_path: Path) -> None:
    async with outlet(tmp_path) as (path, port), asyncio.timeout(WAIT_S):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"early")
        host_reader, host_writer = await park(path)
        assert await host_reader.readexactly(6) == b"cearly"
        writer.close()
        host_writer.close()


@pytest.mark.long
async def test_without_a_host_a_program_is_told_so_in_http(tmp_path: Path) -> None:
    async with outlet(tmp_path) as (_, port), asyncio.timeout(WAIT_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"CONNECT example.com:443 HTTP/1.1\r\n\r\n")
        answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b'"retryable": true' in answer
        writer.close()


async def test_a_host_that_went_away_is_not_given_to_a_program(tmp_path: Path) -> None:
    async with outlet(tmp_path) as (path, port), asyncio.timeout(WAIT_S):
        gone_reader, gone_writer = await park(path)
        gone_writer.close()
        await gone_writer.wait_closed()
        assert await gone_reader.read() == b""
        host_reader, host_writer = await park(path)
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await host_reader.readexactly(1) == b"c"
        writer.close()
        host_writer.close()


async def test_a_bridge_without_a_way_out_says_so(tmp_path: Path) -> None:
    async with running_bridge(tmp_path) as path:
        answer, _, writer = await dial(path, b"out\n")
        assert answer == b"-"
        writer.close()


async def test_a_port_that_is_taken_is_no_way_out_and_leaves_the_bridge_as_it_is(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        env = {"SBX_EGRESS_PORT": str(taken.getsockname()[1])}
        async with running_bridge(tmp_path, env) as path:
            answer, _, writer = await dial(path, b"out\n")
            assert answer == b"-"
            writer.close()


async def test_many_programs_at_once_each_get_their_own(tmp_path: Path) -> None:
    async with outlet(tmp_path) as (path, port), asyncio.timeout(WAIT_S):

        async def host() -> None:
            reader, writer = await park(path)
            assert await reader.readexactly(1) == b"c"
            writer.write(await reader.readexactly(3))
            writer.close()

        async def program(number: int) -> None:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"%03d" % number)
            assert await reader.read() == b"%03d" % number
            writer.close()

        await asyncio.gather(*(program(number) for number in range(100)), *(host() for _ in range(100)))
