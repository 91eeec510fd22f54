"""A relay on loopback before a guest, that checks tokens, answers in its place, and cuts connections."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

_CHUNK_BYTES = 64 * 1024


@dataclass
class Relay:
    """What the relay does; change it while it runs.

    `cut_after_bytes` cuts each connection when that much came down; `stall_after_bytes` leaves one open but silent.
    `bytes_per_s` is how much passes each way.
    `answers` are statuses given to the next connections instead of the guest's. With `tokens`, a connection whose first
    request carries none of them gets 403. While it `is_deaf` it drops what comes. `up_bytes` and `down_bytes` passed.
    """

    guest_port: int
    port: int = 0
    cut_after_bytes: int = 0
    stall_after_bytes: int = 0
    bytes_per_s: float = 0
    tokens: set[str] | None = None
    answers: list[int] = field(default_factory=list)
    cuts: int = 0
    is_deaf: bool = False
    connections: int = 0
    up_bytes: int = 0
    down_bytes: int = 0
    seen_ports: set[str] = field(default_factory=set)
    writers: set[asyncio.StreamWriter] = field(default_factory=set)

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        self.connections += 1
        self.writers.add(writer)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            status = self._status(head)
            if status:
                body = b"Request missing authentication"
                writer.write(b"HTTP/1.1 %d X\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % (status, len(body)))
                writer.write(body)
                await writer.drain()
            else:
                await self._pass_on(head, reader, writer)
        writer.close()
        self.writers.discard(writer)

    def cut(self) -> None:
        """Cut every connection now."""
        for writer in list(self.writers):
            self.cuts += 1
            writer.transport.abort()

    def _status(self, head: bytes) -> int:
        lines = head.decode("latin-1").split("\r\n")[1:]
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        self.seen_ports.add(headers.get("x-aws-proxy-port", ""))
        if self.tokens is not None and headers.get("x-aws-proxy-auth") not in self.tokens:
            return 403
        return self.answers.pop(0) if self.answers else 0

    async def _pass_on(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream_reader, upstream_writer = await asyncio.open_connection("127.0.0.1", self.guest_port)
        upstream_writer.write(head)
        up = asyncio.create_task(self._copy(reader, upstream_writer, is_down=False))
        try:
            await self._copy(upstream_reader, writer, is_down=True)
        finally:
            up.cancel()
            upstream_writer.close()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_down: bool) -> None:
        passed = 0
        while data := await reader.read(_CHUNK_BYTES):
            if self.is_deaf:
                continue
            limit_bytes = self.cut_after_bytes if is_down else 0
            if limit_bytes and passed + len(data) > limit_bytes:
                writer.write(data[: max(0, limit_bytes - passed)])
                self.cuts += 1
                writer.transport.abort() if self.cuts % 2 else writer.close()
                return
            passed += len(data)
            self.up_bytes += 0 if is_down else len(data)
            self.down_bytes += len(data) if is_down else 0
            writer.write(data)
            await writer.drain()
            if self.bytes_per_s:
                await asyncio.sleep(len(data) / self.bytes_per_s)
            if is_down and self.stall_after_bytes and passed >= self.stall_after_bytes:
                self.stall_after_bytes = 0
                await asyncio.get_running_loop().create_future()


@asynccontextmanager
async def running_relay(guest_port: int) -> AsyncIterator[Relay]:
    """A relay before a guest, closed with its connections."""
    relay = Relay(guest_port)
    server = await asyncio.start_server(relay.serve, "127.0.0.1", 0)
    relay.port = server.sockets[0].getsockname()[1]
    try:
        yield relay
    finally:
        server.close()
