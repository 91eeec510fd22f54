"""The guest's server over real sockets."""

from __future__ import annotations

import asyncio

from tests.support.guest_process import GuestProcess


async def _raw(guest: GuestProcess, data: bytes) -> bytes:
    async with asyncio.timeout(5):
        reader, writer = await asyncio.open_connection("127.0.0.1", guest.port)
        writer.write(data)
        reply = await reader.read(65536)
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
