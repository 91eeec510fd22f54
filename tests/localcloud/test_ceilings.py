"""What an endpoint carries where its size has the platform's ceilings: real connections, requests and bytes."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sbxtui.localcloud.ceilings import ceiling_of
from sbxtui.localcloud.duplex import CHUNK_BYTES
from tests.localcloud.endpoint import Endpoint, answer_ok, guest_server, read_answer, run_sandbox
from tests.support.local_cloud import local_cloud

CEILING = ceiling_of(512)
BODY = b"x" * int(2.5 * CEILING.bytes_per_s)


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[Endpoint]:
    """Of a sandbox of the smallest size."""
    with local_cloud(tmp_path, "--runtime", "process", "--ceilings", "on") as cloud:
        yield run_sandbox(cloud)


async def answer_much(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A guest whose answer is more than a second's worth."""
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY)
    await writer.drain()


async def test_connections_requests_and_bytes_beyond_a_size_are_refused_or_wait(endpoint: Endpoint) -> None:
    async with asyncio.timeout(60), guest_server(answer_ok) as port, guest_server(answer_much) as slow_port:
        async with contextlib.AsyncExitStack() as stack:
            # One connection more than documented is let in; how many are not is not known, and here twice as many.
            opened = [await stack.enter_async_context(endpoint.connected()) for _ in range(2 * CEILING.connections + 1)]
            statuses = []
            for reader, writer in (opened[0], opened[-2], opened[-1]):
                writer.write(endpoint.head(port))
                statuses.append((await read_answer(reader))[9:12])
        assert statuses == [b"200", b"200", b"429"]

        async with endpoint.connected() as (reader, writer):
            count = 10 * int(CEILING.requests_per_s)
            writer.write(endpoint.head(port) * count)
            seen = [(await read_answer(reader))[9:12] for _ in range(count)]
        assert set(seen) == {b"200", b"429"}

        # Too many bytes are no error. They cannot have come faster than the ceiling lets them, however slow all is:
        # but for a second's worth that was saved up, and the last piece, which is paid for after it was passed on.
        begun = time.monotonic()
        answer = b""
        while not answer.startswith(b"HTTP/1.1 200"):
            async with endpoint.connected() as (reader, writer):
                # Before: what comes while this process waits for a processor is not to be missed.
                begun = time.monotonic()
                writer.write(endpoint.head(slow_port))
                answer = await read_answer(reader)
        assert answer.endswith(BODY)
        assert time.monotonic() - begun > (len(BODY) - CHUNK_BYTES) / CEILING.bytes_per_s - 1
