"""The fast lane of an endpoint: what goes through it as it came, and what it leaves to the connection's task."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbxtui.core.heads import BadMessage, RequestHead, parse_request
from sbxtui.localcloud import gate
from sbxtui.localcloud.clientstream import ClientStream
from sbxtui.localcloud.duplex import Duplex
from sbxtui.localcloud.exchange import Upstream
from sbxtui.localcloud.gate import Passage, Refused
from sbxtui.localcloud.lane import Begun, Lane, Passes
from sbxtui.localcloud.relay import Cut
from sbxtui.localcloud.streams import Traffic

LIMIT_S = 20
PORT = 8080
ENDPOINT = "127.0.0.1:20000"
GET = b"GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
# As much as a unix socket takes and gives in one piece.
BODY = bytes(15_000)


def check(request: RequestHead) -> Passage:
    """A gate that refuses those who say so."""
    if request.head.values(b"x-refused"):
        raise Refused(403)
    return Passage(PORT, used_subprotocol=False, until=datetime.now(UTC) + timedelta(hours=1))


@dataclass(slots=True)
class Scene:
    """A lane that runs; `client_*` and `guest_*` are the far ends of its two connections."""

    running: asyncio.Task[Begun | bool]
    client: ClientStream
    upstream: Upstream[Duplex]
    traffic: Traffic
    client_reader: asyncio.StreamReader
    client_writer: asyncio.StreamWriter
    guest_reader: asyncio.StreamReader
    guest_writer: asyncio.StreamWriter

    async def ask(self, request: bytes = GET) -> bytes:
        """Send a request without a body; what the guest gets of it."""
        self.client_writer.write(request)
        return await self.guest_reader.readuntil(b"\r\n\r\n")


@contextlib.asynccontextmanager
async def lane(*, is_open: bool = True, room_bytes: int = 0) -> AsyncIterator[Scene]:
    """Both connections, and the lane between them; the guest's holds so much."""
    loop = asyncio.get_running_loop()
    near, far = socket.socketpair()
    _, client = await loop.create_unix_connection(lambda: ClientStream(lambda _: None), sock=near)
    client_reader, client_writer = await asyncio.open_unix_connection(sock=far)
    near, far = socket.socketpair()
    if room_bytes:
        near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, room_bytes)
    guest_reader, guest_writer = await asyncio.open_unix_connection(sock=far)
    traffic = Traffic()
    upstream = Upstream(PORT, traffic.epoch, Duplex(near), time.monotonic())
    made = Lane(
        client, traffic, Passes(ENDPOINT, check), is_open=lambda: is_open, idle_s=LIMIT_S, reuse_within_s=LIMIT_S
    )
    running = asyncio.create_task(made.run(upstream))
    ends = (client_reader, client_writer, guest_reader, guest_writer)
    try:
        async with asyncio.timeout(LIMIT_S):
            yield Scene(running, client, upstream, traffic, *ends)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        upstream.duplex.close()
        client_writer.close()
        guest_writer.close()


def request(method: bytes, path: bytes, body: bytes = b"") -> bytes:
    length = b"Content-Length: %d\r\n" % len(body) if body else b""
    return method + b" " + path + b" HTTP/1.1\r\nHost: localhost\r\n" + length + b"\r\n" + body


# What is sent, and the answer in pieces.
USUAL = [
    (request(b"GET", b"/a%2Fb?c=d"), [OK]),
    (request(b"GET", b"/b"), [b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", b"o", b"k"]),
    (request(b"POST", b"/c", b"a body"), [b"HTTP/1.1 204 No Content\r\n\r\n"]),
    (request(b"POST", b"/d", BODY), [OK]),
    (request(b"HEAD", b"/e"), [b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n"]),
    (request(b"GET", b"/f"), [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\na\r\n0\r\n", b"\r\n"]),
    (request(b"GET", b"/g"), [b"HTTP/1.1 404 Not Found\r\nContent-Length: 1000000\r\n\r\n", bytes(1_000_000)]),
    (request(b"OPTIONS", b"*"), [OK]),
    (request(b"GET", b"/h").replace(b"localhost", b"127.0.0.1"), [OK]),
]


async def test_usual_requests_go_through_as_they_are_without_the_task() -> None:
    async with lane() as scene:
        numbers = set()
        for sent, answer in [*USUAL, *USUAL]:
            scene.client_writer.write(sent)
            head, _, body = sent.partition(b"\r\n\r\n")
            got = await scene.guest_reader.readuntil(b"\r\n\r\n")
            assert got.split(b"\r\n")[0] == head.split(b"\r\n")[0]
            assert f"Host: {ENDPOINT}\r\nx-amzn-requestid: ".encode() in got
            numbers.add(uuid.UUID(got.rpartition(b"x-amzn-requestid: ")[2].decode().strip()))
            assert await scene.guest_reader.readexactly(len(body)) == body
            for piece in answer:
                scene.guest_writer.write(piece)
                assert await scene.client_reader.readexactly(len(piece)) == piece
        assert (len(numbers), {number.version for number in numbers}) == (2 * len(USUAL), {4})
        assert not scene.running.done()
        assert scene.traffic.idle_s < LIMIT_S


async def test_requests_that_came_together_are_answered_one_after_another() -> None:
    async with lane() as scene:
        scene.client_writer.write(GET * 50)
        for _ in range(50):
            await scene.guest_reader.readuntil(b"\r\n\r\n")
            scene.guest_writer.write(OK)
        assert await scene.client_reader.readexactly(50 * len(OK)) == 50 * OK
        assert not scene.running.done()


LEFT_TO_THE_TASK = {
    "one that is refused": b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Refused: 1\r\n\r\n",
    "half a head": b"GET / HTTP/1.1\r\nHost: local",
    "half a body": b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nbody",
    "a chunked one": b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "one that waits to go on": b"POST / HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n\r\n",
    "an upgrade": b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n",
    "the last one": b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    "an old one": b"GET / HTTP/1.0\r\nHost: localhost\r\n\r\n",
    "two hosts": b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
    "two framings": b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a bare line feed": b"GET / HTTP/1.1\r\nHost: localhost\nX: y\r\n\r\n",
    "a bare line feed in the first line": b"GET /\nX: y HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "an address": b"GET http://evil.example/ HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a tunnel": b"CONNECT / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "no HTTP": b"\x16\x03\x01\r\n\r\n",
}


@pytest.mark.parametrize("what", LEFT_TO_THE_TASK)
async def test_of_what_is_left_to_the_task_nothing_is_taken(what: str) -> None:
    async with lane() as scene:
        for _ in range(2):
            await scene.ask()
            scene.guest_writer.write(OK)
            await scene.client_reader.readexactly(len(OK))
        scene.client_writer.write(LEFT_TO_THE_TASK[what])
        assert await scene.running is True
        assert scene.client.held == LEFT_TO_THE_TASK[what]
        assert scene.upstream.duplex.is_quiet


async def test_a_closed_lane_and_an_old_connection_carry_nothing() -> None:
    async with lane(is_open=False) as scene:
        scene.client_writer.write(GET)
        assert await scene.running is True
        assert scene.client.held == GET
    async with lane() as scene:
        # A suspend in between.
        scene.traffic.cut_all()
        scene.client_writer.write(GET)
        assert await scene.running is True
        assert scene.client.held == GET


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\nuntil the end",
        b"HTTP/1.1 200 OK\r\nContent-",
        b"\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    ],
)
async def test_an_unusual_answer_is_the_tasks_whole(answer: bytes) -> None:
    async with lane() as scene:
        await scene.ask()
        scene.guest_writer.write(answer)
        begun = await scene.running
        assert isinstance(begun, Begun)
        assert (begun.head, begun.passage.port, begun.unsent) == (GET, PORT, b"")
        assert await scene.upstream.source.read() == answer


async def test_what_the_guest_does_not_take_is_the_tasks_to_send() -> None:
    async with lane(room_bytes=4096) as scene:
        scene.client_writer.write(request(b"POST", b"/", BODY))
        begun = await scene.running
        assert isinstance(begun, Begun)
        assert 0 < len(begun.unsent) < len(BODY)
        await scene.guest_reader.readuntil(b"\r\n\r\n")
        assert await scene.guest_reader.readexactly(len(BODY) - len(begun.unsent)) + begun.unsent == BODY


BROKEN = {
    "no answer": (b"", BadMessage),
    "no HTTP": (b"SSH-2.0-OpenSSH\r\n\r\n", BadMessage),
    "two lengths": (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", BadMessage),
    "half a body": (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", Cut),
    "no chunk": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\nx", Cut),
}


@pytest.mark.parametrize("what", BROKEN)
async def test_an_answer_that_breaks_off_is_none(what: str) -> None:
    answer, kind = BROKEN[what]
    async with lane() as scene:
        await scene.ask()
        scene.guest_writer.write(answer)
        scene.guest_writer.close()
        with pytest.raises(kind):
            await scene.running


async def test_what_nobody_asked_for_is_no_answer_to_the_next() -> None:
    async with lane() as scene:
        await scene.ask()
        scene.guest_writer.write(OK + OK)
        assert await scene.client_reader.readexactly(len(OK)) == OK
        assert await scene.running is True
        assert not scene.upstream.duplex.is_quiet


async def test_a_guest_that_closes_is_believed() -> None:
    async with lane() as scene:
        await scene.ask()
        scene.guest_writer.write(OK.replace(b"OK\r\n", b"OK\r\nConnection: close\r\n"))
        assert await scene.running is False


async def test_a_client_that_leaves_ends_its_request_and_a_cut_both() -> None:
    async with lane() as scene:
        await scene.ask()
        scene.client_writer.close()
        with pytest.raises(Cut):
            await scene.running
    async with lane() as scene:
        await scene.ask()
        scene.traffic.cut_all()
        with pytest.raises(Cut):
            await scene.running
        assert await scene.guest_reader.read() == b""
        assert await scene.client_reader.read() == b""


async def test_a_client_that_does_not_read_holds_the_guest_back() -> None:
    body = bytes(20_000_000)
    async with lane() as scene:
        await scene.ask()
        scene.guest_writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body))
        scene.guest_writer.write(body)
        sending = asyncio.create_task(scene.guest_writer.drain())
        await scene.client_reader.readuntil(b"\r\n\r\n")
        while not scene.client.is_slow:
            await asyncio.sleep(0)
        assert not sending.done()
        assert await scene.client_reader.readexactly(len(body)) == body
        await sending
        assert not scene.running.done()


NAMES = st.sampled_from([b"X-A", b"x-aws-proxy-auth", b"X-Amzn-RequestId", b"Accept", b"Content-Length", b"Expect"])
VALUES = st.sampled_from([b"", b" ", b"1", b"a, b", b"  spaced\t", b"keep-alive", b"\xff"])
FIELDS = st.lists(st.tuples(NAMES, VALUES), max_size=5)


@given(FIELDS, st.sampled_from([b"/", b"/a?b=%20", b"*", b"/\xff", b"a", b"/ b"]))
def test_what_is_remembered_is_what_the_gate_passes_on(fields: list[tuple[bytes, bytes]], target: bytes) -> None:
    passes = Passes(ENDPOINT, check)
    rest = b"Host: localhost\r\n" + b"".join(name + b":" + value + b"\r\n" for name, value in fields) + b"\r\n"
    for method in (b"GET", b"POST", b"GET"):
        raw = method + b" " + target + b" HTTP/1.1\r\n" + rest
        found = passes.find(raw)
        if found is None:
            continue
        known, line, told = found
        asked = parse_request(raw)
        assert (told, known.length) == (asked.method, asked.length)
        wanted = gate.passed_on(asked, known.passage, ENDPOINT, "number").to_bytes()
        assert line + known.fields + b"number\r\n\r\n" == wanted


def test_a_pass_ends_with_its_token() -> None:
    until = datetime.now(UTC)
    passes = Passes(ENDPOINT, lambda _: Passage(PORT, used_subprotocol=False, until=until))
    assert passes.find(GET) is None
