"""The proxy of a sandbox as a program in it meets it: a real connection, and destinations of a test behind it.

Names and addresses are the test's; every address that is dialled is written down and leads to a server of the test.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sbxtui.core.egress import NetworkPolicy, parse_network
from sbxtui.core.hosts import Address
from sbxtui.localcloud.duplex import Duplex
from sbxtui.localcloud.egress.conversation import Conversation, Patience, Ways
from sbxtui.localcloud.egress.detour import Detour
from sbxtui.localcloud.egress.dialing import LOOPBACK, Streams, connect_directly
from sbxtui.localcloud.egress.log import NetworkLog
from sbxtui.localcloud.egress.secrets import SecretBook
from sbxtui.localcloud.egress.tls import system_trust

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
WAIT_S = 20
PUBLIC, OTHER, PRIVATE = "93.184.216.34", "2606:2800:220:1::1", "10.0.0.5"


@dataclass(slots=True)
class WayOut:
    """One sandbox's proxy. `names` says what a name leads to at each lookup, the last answer for good; a name without
    answers is never resolved.
    """

    policy: NetworkPolicy
    log: NetworkLog
    names: dict[str, list[list[str]]]
    sandbox_id: str = "microvm-1"
    upstream_port: int = 0
    patience: Patience = field(default_factory=Patience)
    dialled: list[tuple[str, int]] = field(default_factory=list)
    lookups: list[str] = field(default_factory=list)
    conversations: list[Conversation] = field(default_factory=list)
    secrets: SecretBook = field(default_factory=SecretBook)
    trust: Callable[[], ssl.SSLContext] = system_trust
    detour: Detour = field(default_factory=Detour)
    port: int = 0

    async def resolve(self, host: str) -> Sequence[Address]:
        """The test's resolver."""
        self.lookups.append(host)
        answers = self.names.get(host)
        if answers is None:
            raise OSError("no such name")
        if not answers:
            await asyncio.get_running_loop().create_future()
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        return [ipaddress.ip_address(text) for text in answer]

    async def connect(self, address: Address, port: int) -> Duplex:
        """Write down what was dialled, and lead it to the test's server."""
        self.dialled.append((str(address), port))
        return await connect_directly(LOOPBACK, self.upstream_port)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection of a program."""
        conversation = Conversation(
            self, Ways(self.resolve, self.connect, self.patience, self.trust, self.detour), (reader, writer)
        )
        self.conversations.append(conversation)
        await conversation.serve()

    async def ask(self, request: bytes) -> bytes:
        """Send bytes and read until the proxy ends the connection."""
        async with asyncio.timeout(WAIT_S):
            reader, writer = await self.open()
            writer.write(request)
            answer = await reader.read()
            writer.close()
            return answer

    async def open(self) -> Streams:
        """A connection to the proxy."""
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def tunnel(self, place: str) -> tuple[bytes, Streams]:
        """CONNECT; the answer's head, and the connection."""
        reader, writer = await self.open()
        writer.write(f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n\r\n".encode())
        async with asyncio.timeout(WAIT_S):
            return await reader.readuntil(b"\r\n\r\n"), (reader, writer)

    def actions(self) -> list[str]:
        """What the log says became of each request."""
        return [entry["action"] for entry in self.log.after(0)]


@contextlib.asynccontextmanager
async def way_out(
    folder: Path, network: str, upstream: Serve | None = None, *, tls: ssl.SSLContext | None = None, **changes: Any
) -> AsyncIterator[WayOut]:
    """A proxy with a policy, and a server that every address leads to."""
    names = {"example.com": [[PUBLIC]], "inside.example.com": [[PRIVATE]]}
    way = WayOut(parse_network(network), NetworkLog(folder / "network.jsonl"), names, **changes)
    server = await asyncio.start_server(way.serve, "127.0.0.1", 0)
    behind = await asyncio.start_server(upstream or _answer, "127.0.0.1", 0, ssl=tls)
    way.port, way.upstream_port = (one.sockets[0].getsockname()[1] for one in (server, behind))
    try:
        yield way
    finally:
        for conversation in way.conversations:
            conversation.cut()
        server.close()
        behind.close()


def error_of(answer: bytes) -> dict[str, Any]:
    """The error document of a refusal."""
    document: dict[str, Any] = json.loads(answer.partition(b"\r\n\r\n")[2])["error"]
    return document


def status_of(answer: bytes) -> int:
    """The status of an answer; 0 when there is none."""
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else 0


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer with the request's head as it came."""
    head = await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(head), head))
    await writer.drain()
    writer.close()
