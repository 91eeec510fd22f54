"""Large bodies of known length: byte for byte however they come, past uvicorn's parser and back to it."""

from __future__ import annotations

import asyncio
import os
import tracemalloc
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import cast
from urllib.parse import quote

import pytest

from sbxguest.app import Message, Request
from sbxguest.largebody import LargeBody
from sbxguest.state import Guest
from tests.support.guest_process import GuestProcess

MIB = 1024 * 1024
LARGE = os.urandom(3 * MIB + 17)
LIMIT_S = 30.0


class Line:
    """One connection to a guest, spoken to by hand."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()

    async def status(self) -> int:
        """Of the next answer, which is read to its end."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        fields = dict(line.lower().split(b": ", 1) for line in head.splitlines()[1:] if line)
        await self.reader.readexactly(int(fields[b"content-length"]))
        return int(head.split(b" ")[1])


@asynccontextmanager
async def line_to(guest: GuestProcess) -> AsyncIterator[Line]:
    async with asyncio.timeout(LIMIT_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", guest.port)
        try:
            yield Line(reader, writer)
        finally:
            writer.close()


def put(path: str, size_bytes: int, *fields: str) -> bytes:
    lines = (f"PUT /v2/files?path={quote(path)} HTTP/1.1", "host: guest", f"content-length: {size_bytes}", *fields)
    return "\r\n".join((*lines, "", "")).encode()


def cut_at(data: bytes, places: Iterable[int]) -> list[bytes]:
    ends = [0, *places, len(data)]
    return [data[start:end] for start, end in pairwise(ends)]


@pytest.mark.parametrize(
    "places", [(), (1, 2), (MIB - 1, MIB + 1), (100, 200_000, 2 * MIB)], ids=["whole", "dribble", "edges", "odd"]
)
async def test_it_arrives_wherever_it_is_cut_and_other_requests_follow(
    guest: GuestProcess, places: tuple[int, ...]
) -> None:
    async with line_to(guest) as line:
        for name in ("first", "second"):
            await line.send(put(name, len(LARGE)), *cut_at(LARGE, places))
            assert await line.status() == 201
        # The head and all of it, and the next request, at once.
        await line.send(put("third", len(LARGE)) + LARGE + put("small", 5) + b"hello")
        assert [await line.status(), await line.status()] == [201, 201]
    assert all((guest.workdir / name).read_bytes() == LARGE for name in ("first", "second", "third"))
    assert (guest.workdir / "small").read_bytes() == b"hello"


async def test_zeros_in_it_and_a_length_of_just_one_piece_arrive_too(guest: GuestProcess) -> None:
    content = bytes(MIB) + b"\0x" + bytes(MIB - 2)
    async with line_to(guest) as line:
        await line.send(put("zeros", len(content)), content, put("piece", MIB), LARGE[:MIB])
        assert [await line.status(), await line.status()] == [201, 201]
    assert (guest.workdir / "zeros").read_bytes() == content
    assert (guest.workdir / "piece").read_bytes() == LARGE[:MIB]


async def test_one_that_is_refused_is_passed_over_and_the_connection_goes_on(guest: GuestProcess) -> None:
    async with line_to(guest) as line:
        await line.send(put("no/such/folder", 8 * len(LARGE)), LARGE[:10])
        assert await line.status() == 404
        await line.send(LARGE[10:], *([LARGE] * 7), put("next", 2), b"ok")
        assert await line.status() == 201
    assert (guest.workdir / "next").read_bytes() == b"ok"


async def test_one_that_waits_behind_another_request_arrives(guest: GuestProcess) -> None:
    async with line_to(guest) as line:
        await line.send(put("before", len(LARGE)) + LARGE + put("behind", len(LARGE)) + LARGE[:7], LARGE[7:])
        assert [await line.status(), await line.status()] == [201, 201]
    assert (guest.workdir / "before").read_bytes() == (guest.workdir / "behind").read_bytes() == LARGE


async def test_a_client_that_waits_to_be_asked_is_asked(guest: GuestProcess) -> None:
    async with line_to(guest) as line:
        await line.send(put("asked", len(LARGE), "expect: 100-continue"))
        assert b"100 Continue" in await line.reader.readuntil(b"\r\n\r\n")
        await line.send(LARGE)
        assert await line.status() == 201
    assert (guest.workdir / "asked").read_bytes() == LARGE


async def test_one_that_is_cut_leaves_nothing_of_a_file(guest: GuestProcess) -> None:
    async with line_to(guest) as line:
        await line.send(put("cut", len(LARGE)), LARGE[: 2 * MIB])
    async with line_to(guest) as line:
        await line.send(put("after", 2), b"ok")
        assert await line.status() == 201
    async with asyncio.timeout(LIMIT_S):
        while sorted(path.name for path in guest.workdir.iterdir()) != ["after"]:
            await asyncio.sleep(0.01)


async def test_as_many_zeros_as_anyone_likes_may_be_before_its_length(guest: GuestProcess) -> None:
    async with line_to(guest) as line:
        await line.send(put("zeros", 5).replace(b": 5", b": " + b"0" * 5000 + b"5") + b"small")
        await line.send(put("large", MIB).replace(b": 10", b": " + b"0" * 5000 + b"10"), LARGE[:MIB])
        assert [await line.status(), await line.status()] == [201, 201]
    assert (guest.workdir / "large").read_bytes() == LARGE[:MIB]


def filled(body: LargeBody, data: bytes) -> None:
    """As a connection does it."""
    room = body.room()
    room[: len(data)] = data
    body.filled(len(data))


async def test_nobody_reads_on_while_two_pieces_wait() -> None:
    calls: list[str] = []
    body = LargeBody(4 * MIB, lambda: calls.append("pause"), lambda: calls.append("resume"))
    filled(body, b"a" * MIB)
    assert not calls
    filled(body, b"b" * MIB)
    assert calls == ["pause"]
    pieces = body.pieces()
    assert bytes(await anext(pieces)) == b"a" * MIB and calls == ["pause"]
    assert bytes(await anext(pieces)) == b"b" * MIB and calls == ["pause", "resume"]
    filled(body, b"c" * MIB)
    body.cut()
    assert [bytes(piece) async for piece in pieces] == [b"c" * MIB]


async def test_a_cut_brings_what_came_and_says_so() -> None:
    body = LargeBody(4 * MIB, lambda: None, lambda: None)
    filled(body, b"begun")
    body.cut()
    assert [bytes(piece) async for piece in body.pieces()] == [b"begun"]
    assert body.is_cut


async def test_who_wants_it_promptly_gets_what_is_there() -> None:
    body = LargeBody(4 * MIB, lambda: None, lambda: None)
    filled(body, b"first")
    pieces = body.pieces(is_prompt=True)
    assert bytes(await anext(pieces)) == b"first"
    waiting = asyncio.ensure_future(anext(pieces))
    await asyncio.sleep(0)
    filled(body, b"second")
    assert bytes(await waiting) == b"second"
    await pieces.aclose()


@pytest.mark.parametrize("is_read", [True, False])
async def test_nothing_is_held_of_one_that_is_over(is_read: bool) -> None:
    tracemalloc.start()
    try:
        body = LargeBody(2 * MIB, lambda: None, lambda: None)
        for _ in range(2):
            filled(body, b"x" * MIB)
        assert tracemalloc.get_traced_memory()[0] > 2 * MIB
        if is_read:
            assert sum([len(piece) async for piece in body.pieces()]) == 2 * MIB
        else:
            body.drop()
        assert tracemalloc.get_traced_memory()[0] < MIB
    finally:
        tracemalloc.stop()


async def test_one_that_nobody_reads_keeps_no_client_waiting() -> None:
    async def gone() -> Message:
        return {"type": "http.disconnect"}

    calls: list[str] = []
    body = LargeBody(8 * MIB, lambda: calls.append("pause"), lambda: calls.append("resume"))
    request = Request(cast(Guest, None), "GET", "/", {}, {}, large=body, _receive=gone)
    for _ in range(2):
        filled(body, b"x" * MIB)
    assert calls == ["pause"]
    await request.until_disconnect()
    for _ in range(6):
        filled(body, b"x" * MIB)
    assert calls == ["pause", "resume"]
