"""A sandbox's way out from end to end: programs, the real bridge, the gateway, and servers of the test."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from sbxtui.core.egress import NO_NETWORK, parse_network
from sbxtui.core.hosts import THIS_MACHINE
from sbxtui.core.model import SandboxState
from sbxtui.localcloud.egress import gateway as gateways
from sbxtui.localcloud.egress.gateway import Gateway
from sbxtui.localcloud.egress.log import NetworkLog
from sbxtui.localcloud.egress.service import usual_ways
from tests.guest.test_bridge import WAIT_S, running_bridge, serving


@dataclass(slots=True)
class Life:
    """A sandbox's, as the test says."""

    state: SandboxState = SandboxState.RUNNING
    is_over: bool = False


@dataclass(slots=True)
class Scene:
    """A running gateway; `port` is where programs connect."""

    gateway: Gateway
    life: Life
    serving: asyncio.Task[None]
    port: int

    async def tunnel(self, port: int) -> tuple[bytes, asyncio.StreamReader, asyncio.StreamWriter]:
        """CONNECT to a port of this machine."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(f"CONNECT {THIS_MACHINE}:{port} HTTP/1.0\r\n\r\n".encode())
        return await reader.readuntil(b"\r\n\r\n"), reader, writer

    async def end(self) -> None:
        """The sandbox ends."""
        self.life.is_over = True
        async with asyncio.timeout(WAIT_S):
            await self.serving


@asynccontextmanager
async def scene(folder: Path, allowed_port: int = 0) -> AsyncIterator[Scene]:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = int(sock.getsockname()[1])
    policy = parse_network(f"allow={THIS_MACHINE}:{allowed_port}") if allowed_port else NO_NETWORK
    gateway, life = Gateway("microvm-1", folder, policy, NetworkLog(folder / "network.jsonl")), Life()
    async with running_bridge(folder, {"SBX_EGRESS_PORT": str(port)}):
        task = asyncio.create_task(gateway.serve(life, usual_ways()))
        try:
            async with asyncio.timeout(WAIT_S):
                while gateway.has_bridge is None:
                    await asyncio.sleep(0.01)
            yield Scene(gateway, life, task, port)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
        await writer.drain()
    writer.close()


async def test_a_program_reaches_a_real_server_through_bridge_and_gateway(tmp_path: Path) -> None:
    async with serving(echo) as port, scene(tmp_path, port) as way, asyncio.timeout(WAIT_S):
        head, reader, writer = await way.tunnel(port)
        assert head.startswith(b"HTTP/1.1 200 ")
        writer.write(b"x" * 1_000_000)
        assert await reader.readexactly(1_000_000) == b"x" * 1_000_000
        writer.close()


async def test_more_programs_than_are_parked_for_are_all_served(tmp_path: Path) -> None:
    async def ask(way: Scene, port: int) -> bytes:
        _, reader, writer = await way.tunnel(port)
        writer.write(b"ping")
        answer = await reader.readexactly(4)
        writer.close()
        return answer

    async with serving(echo) as port, scene(tmp_path, port) as way, asyncio.timeout(WAIT_S):
        assert await asyncio.gather(*(ask(way, port) for _ in range(60))) == [b"ping"] * 60


@pytest.mark.long
async def test_connections_are_bounded_and_one_that_ends_makes_room(tmp_path: Path) -> None:
    limit = gateways.MAX_CONNECTIONS
    async with serving(echo) as port, scene(tmp_path, port) as way, asyncio.timeout(3 * WAIT_S):
        held = [await way.tunnel(port) for _ in range(limit)]
        assert way.gateway.open_count == limit
        waiting = asyncio.create_task(way.tunnel(port))
        for _, _, writer in held[:8]:
            writer.close()
        head, _, writer = await waiting
        assert head.startswith(b"HTTP/1.1 200 ")
        assert way.gateway.open_count <= limit
        for _, _, other in [*held[8:], (head, None, writer)]:
            other.close()


async def test_a_changed_policy_cuts_what_it_no_longer_allows(tmp_path: Path) -> None:
    async with serving(echo) as port, scene(tmp_path, port) as way, asyncio.timeout(WAIT_S):
        _, reader, writer = await way.tunnel(port)
        assert way.gateway.apply(NO_NETWORK) == 1
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()
        refused, _, writer = await way.tunnel(port)
        assert refused.startswith(b"HTTP/1.1 403 ")
        writer.close()


async def test_a_sandbox_that_ends_leaves_no_connection(tmp_path: Path) -> None:
    async with serving(echo) as port, scene(tmp_path, port) as way, asyncio.timeout(WAIT_S):
        _, reader, writer = await way.tunnel(port)
        await way.end()
        assert way.gateway.open_count == 0
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()


@pytest.mark.parametrize("answer", [b"+", b"+c", b"+cno request\r\n\r\n"], ids=["drops", "takes", "talks nonsense"])
async def test_a_bridge_that_parks_for_nothing_does_not_make_the_host_spin(tmp_path: Path, answer: bytes) -> None:
    dials = 0

    async def hostile(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal dials
        dials += 1
        await reader.readline()
        writer.write(answer)
        writer.close()

    server = await asyncio.start_unix_server(hostile, str(tmp_path / "in.sock"))
    gateway, life = Gateway("microvm-1", tmp_path, NO_NETWORK, NetworkLog(tmp_path / "network.jsonl")), Life()
    task = asyncio.create_task(gateway.serve(life, usual_ways()))
    try:
        async with asyncio.timeout(WAIT_S):
            while gateway.has_bridge is None:
                await asyncio.sleep(0.01)
            # Two of the pauses that keep it from spinning.
            await asyncio.wait({task}, timeout=2)
        assert 1 <= dials < 40
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        server.close()
