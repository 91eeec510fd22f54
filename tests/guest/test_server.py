"""The guest's server over real sockets."""

from __future__ import annotations

import asyncio
import re

from sbxguest.version import GUEST_VERSION
from sbxtui._version import __version__
from tests.support.guest_process import GuestProcess


async def _raw(guest: GuestProcess, data: bytes) -> bytes:
    async with asyncio.timeout(5):
        reader, writer = await asyncio.open_connection("127.0.0.1", guest.port)
        writer.write(data)
        reply = await reader.readuntil(b"\r\n\r\n")
        if length := re.search(rb"content-length: (\d+)", reply):
            reply += await reader.readexactly(int(length[1]))
        writer.close()
        return reply


async def test_a_stray_tls_hello_gets_400_and_the_listener_lives_on(guest: GuestProcess) -> None:
    hello = bytes.fromhex("16030100fa010000f60303") + bytes(64)
    assert (await _raw(guest, hello)).startswith(b"HTTP/1.1 400")
    assert (await _raw(guest, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")).startswith(b"HTTP/1.1 200")


async def test_what_is_not_there_is_an_error_of_the_one_shape(guest: GuestProcess) -> None:
    reply = await _raw(guest, b"GET /v2/nothing HTTP/1.1\r\nHost: x\r\n\r\n")
    assert reply.startswith(b"HTTP/1.1 404")
    assert b'{"error":{"code":"unsupported"' in reply
    assert (await _raw(guest, b"PUT /healthz HTTP/1.1\r\nHost: x\r\n\r\n")).startswith(b"HTTP/1.1 405")


def test_the_guest_has_the_version_of_the_host_it_comes_with() -> None:
    assert __version__ == GUEST_VERSION


async def test_a_request_before_its_body_is_whole_disturbs_nobody(guest: GuestProcess) -> None:
    # The guest may have served other tests before, with what they provoked in its log.
    before = len(guest.log_file.read_bytes())
    _reader, writer = await asyncio.open_connection("127.0.0.1", guest.port)
    writer.write(b"POST /v2/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
    await writer.drain()
    writer.transport.abort()
    assert (await _raw(guest, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")).startswith(b"HTTP/1.1 200")
    assert b"Traceback" not in guest.log_file.read_bytes()[before:]


async def test_a_websocket_nobody_serves_is_refused(guest: GuestProcess) -> None:
    head = (
        b"GET /v2/nothing HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    )
    assert (await _raw(guest, head)).startswith(b"HTTP/1.1 404")
    assert (await _raw(guest, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")).startswith(b"HTTP/1.1 200")
