"""Connections whose directions fail apart: what came is read to its end, whatever became of sending."""

from __future__ import annotations

import asyncio
import socket

import pytest

from sbxtui.localcloud.duplex import Duplex

LIMIT_S = 20


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    """Two ends of one loopback connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        far, _ = server.accept()
    return near, far


PAIRS = {"tcp": tcp_pair, "unix": socket.socketpair}


@pytest.mark.parametrize("kind", PAIRS)
async def test_what_was_said_before_the_other_side_broke_off_is_read_after_sending_failed(kind: str) -> None:
    near, far = PAIRS[kind]()
    duplex = Duplex(near)
    async with asyncio.timeout(LIMIT_S):
        await duplex.send(b"unread")
        far.sendall(b"x" * 100_000)
        # With something unread, closing breaks the connection off.
        far.close()
        with pytest.raises(OSError):
            while True:
                await duplex.send(b"more" * 10_000)
        received = b""
        try:
            while data := await duplex.read(7_000):
                received += data
        except OSError:
            pass
    duplex.close()
    assert received == b"x" * 100_000


async def test_a_read_that_is_cancelled_loses_nothing() -> None:
    near, far = socket.socketpair()
    duplex = Duplex(near)
    for number in range(50):
        reading = asyncio.create_task(duplex.read())
        await asyncio.sleep(0)
        far.sendall(b"%d" % (number % 10))
        for _ in range(number % 4):
            await asyncio.sleep(0)
        reading.cancel()
        done = (await asyncio.gather(reading, return_exceptions=True))[0]
        if not isinstance(done, bytes):
            async with asyncio.timeout(LIMIT_S):
                done = await duplex.read()
        assert done == b"%d" % (number % 10)
    duplex.close()
    far.close()


async def test_sending_waits_for_who_does_not_read_and_closing_ends_every_wait() -> None:
    near, far = socket.socketpair()
    duplex = Duplex(near)
    reading = asyncio.create_task(duplex.read())
    sending = asyncio.create_task(duplex.send(bytes(8 << 20)))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not (reading.done() or sending.done())
    duplex.close()
    async with asyncio.timeout(LIMIT_S):
        results = await asyncio.gather(reading, sending, return_exceptions=True)
    assert all(isinstance(result, OSError) for result in results)
    far.close()


async def test_it_is_quiet_until_something_comes_or_it_ends() -> None:
    near, far = socket.socketpair()
    duplex = Duplex(near)
    assert duplex.is_quiet
    far.send(b"x")
    assert not duplex.is_quiet
    assert await duplex.read() == b"x"
    assert duplex.is_quiet
    far.close()
    assert not duplex.is_quiet
    assert await duplex.read() == b""
    duplex.close()
    assert not duplex.is_quiet


async def test_one_half_ends_while_the_other_goes_on() -> None:
    near, far = socket.socketpair()
    duplex = Duplex(near)
    await duplex.send(b"all")
    duplex.end()
    assert (far.recv(10), far.recv(10)) == (b"all", b"")
    far.sendall(b"answer")
    assert await duplex.read() == b"answer"
    reader, writer = await duplex.streams()
    far.close()
    assert await reader.read() == b""
    writer.close()
