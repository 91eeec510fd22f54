"""Messages in parts arrive whole and in order, whatever the socket takes at once and whoever else writes."""

from __future__ import annotations

import asyncio
import socket

from sbxguest.mux.frames import Part
from sbxguest.mux.gather import Gatherer

LIMIT_S = 30


class Held(asyncio.Protocol):
    """The writing end, and whether it was told to wait."""

    def __init__(self) -> None:
        self.may_write = asyncio.Event()
        self.may_write.set()
        self.pauses = 0

    def pause_writing(self) -> None:
        self.pauses += 1
        self.may_write.clear()

    def resume_writing(self) -> None:
        self.may_write.set()


async def test_parts_of_all_sizes_arrive_as_they_were_given_at_a_reader_that_is_slower() -> None:
    near, far = socket.socketpair()
    loop, held = asyncio.get_running_loop(), Held()
    async with asyncio.timeout(LIMIT_S):
        transport, _ = await loop.create_connection(lambda: held, sock=near)
        reader, writer = await asyncio.open_connection(sock=far)
        gatherer, wanted = Gatherer(transport), b""
        messages: list[list[Part]] = [
            [b"head", bytes(300_000), memoryview(b"x" * 500_000)[7:], b"end"],
            [b"small"],
            [b"%03d" % at * 700 for at in range(200)],
            [b"y" * 1_000_000],
        ]
        reading = asyncio.create_task(reader.read())
        for number, message in enumerate(messages * 5):
            await held.may_write.wait()
            gatherer.write(message)
            wanted += b"".join(message)
            if number % 3 == 0:
                # As the library does, which knows nothing of ours.
                transport.write(b"another's")
                wanted += b"another's"
        transport.close()
        assert await reading == wanted
        assert held.pauses
        writer.close()


async def test_what_goes_to_a_peer_that_has_gone_is_dropped() -> None:
    near, far = socket.socketpair()
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(LIMIT_S):
        transport, _ = await loop.create_connection(Held, sock=near)
        gatherer = Gatherer(transport)
        far.close()
        for _ in range(3):
            gatherer.write([b"x" * 100_000, b"y" * 100_000])
            await asyncio.sleep(0)
        assert transport.is_closing()
        transport.close()
