"""Requests through an endpoint that refuses, hurries or breaks: what is tried again, and what a client is told."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from sbxtui.core.errors import Conflict, SandboxEnded
from sbxtui.guest.tunnel import TunnelState
from tests.localcloud.conftest import cloud, endpoint, other_sandbox
from tests.localcloud.endpoint import OK, Endpoint, answer_ok
from tests.support.forwarding import Proxied, proxied, serving

__all__ = ["cloud", "endpoint", "other_sandbox"]
GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\nbody"


@pytest.fixture(autouse=True)
async def limit() -> AsyncIterator[None]:
    async with asyncio.timeout(60):
        yield


class Scripted:
    """An endpoint that gives the next requests these answers, one after the other; empty closes the connection."""

    def __init__(self, *answers: bytes) -> None:
        self.answers = list(answers)
        self.heads: list[bytes] = []
        self.connections = 0
        self.open = 0
        self.most_open = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        self.most_open = max(self.open, self.most_open)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.heads.append(head)
                if b"Content-Length: 4" in head:
                    await reader.readexactly(4)
                answer = self.answers.pop(0) if self.answers else OK
                writer.write(answer)
                if not answer or b"close" in answer:
                    return
        finally:
            self.open -= 1


def plain(status: int, body: bytes = b"") -> bytes:
    return b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body)


NUMBERED = b"HTTP/1.1 429 X\r\nx-amzn-requestid: 1\r\nContent-Length: 4\r\n\r\nslow"
OWN = b"HTTP/1.1 429 X\r\nRetry-After: 9\r\nContent-Length: 0\r\n\r\n"


async def ask(forward: Proxied, *requests: bytes) -> list[bytes]:
    """Send requests over one connection; the answers' first lines and bodies."""
    reader, writer = await forward.connect()
    answers = []
    for request in requests:
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
        answers.append(head.split(b"\r\n")[0] + b" " + await reader.readexactly(int(length.split(b":")[1])))
    writer.close()
    return answers


async def test_a_refused_token_is_renewed_once_and_one_for_another_port_is_told(
    endpoint: Endpoint, other_sandbox: Endpoint
) -> None:
    async with serving(answer_ok) as port:
        tokens = [other_sandbox.token, endpoint.token]
        async with proxied(endpoint.address, port, tokens=tokens, verify=endpoint.context()) as forward:
            assert await ask(forward, GET, POST) == [b"HTTP/1.1 200 OK ok"] * 2
            assert forward.way.state is TunnelState.UP and not forward.trouble
        narrow = [endpoint.mint([{"port": 1}])]
        async with proxied(endpoint.address, port, tokens=narrow, verify=endpoint.context()) as forward:
            (answer,) = await ask(forward, GET)
            assert answer.startswith(b"HTTP/1.1 502 ") and b"our token is not for port" in answer
            assert forward.trouble == [f"the endpoint says that our token is not for port {port}"]


async def test_a_port_nobody_listens_on_is_named_and_served_once_somebody_does(endpoint: Endpoint) -> None:
    async with serving(answer_ok) as port:
        pass
    async with proxied(endpoint.address, port, tokens=[endpoint.token], verify=endpoint.context()) as forward:
        (answer,) = await ask(forward, GET)
        assert answer == b"HTTP/1.1 502 Bad Gateway sbx: nothing listens on port %d in the sandbox\n" % port
        server = await asyncio.start_server(answer_ok, "127.0.0.1", port)
        assert await ask(forward, GET) == [b"HTTP/1.1 200 OK ok"]
        server.close()


async def test_what_the_endpoint_let_not_through_is_sent_again_and_a_body_never() -> None:
    script = Scripted(plain(429), NUMBERED, plain(502), OK, plain(502))
    async with serving(script.serve) as port, proxied(f"http://127.0.0.1:{port}", 80, tokens=["t"]) as forward:
        assert await ask(forward, GET) == [b"HTTP/1.1 200 OK ok"]
        (answer,) = await ask(forward, POST)
        assert answer.startswith(b"HTTP/1.1 502 ") and len(script.heads) == 5
        assert script.connections == 1


async def test_an_apps_own_refusals_pass_as_they_are() -> None:
    own = (plain(403, b"not yours"), plain(502, b"upstream is down"), plain(429, b"slow down"), OWN)
    script = Scripted(*own)
    async with serving(script.serve) as port, proxied(f"http://127.0.0.1:{port}", 80, tokens=["t"]) as forward:
        answers = await ask(forward, GET, GET, GET, GET)
        assert [answer.split(b" X ")[1] for answer in answers] == [answer.split(b"\r\n\r\n")[1] for answer in own]
        assert forward.way.state is TunnelState.UP


async def test_a_kept_connection_that_was_closed_costs_a_get_nothing_and_a_body_is_not_sent_twice() -> None:
    script = Scripted(OK, b"", OK, b"")
    async with serving(script.serve) as port, proxied(f"http://127.0.0.1:{port}", 80, tokens=["t"]) as forward:
        assert await ask(forward, GET, GET) == [b"HTTP/1.1 200 OK ok"] * 2
        (answer,) = await ask(forward, POST)
        assert answer.startswith(b"HTTP/1.1 502 ") and b"broke" in answer
        assert [head.split(b" ")[0] for head in script.heads] == [b"GET", b"GET", b"GET", b"POST"]


async def test_no_more_connections_than_the_size_allows_and_all_are_served() -> None:
    script = Scripted()
    async with (
        serving(script.serve) as port,
        proxied(f"http://127.0.0.1:{port}", 80, tokens=["t"], connections=3) as forward,
    ):
        answers = await asyncio.gather(*(ask(forward, GET, GET) for _ in range(40)))
        assert {tuple(one) for one in answers} == {(b"HTTP/1.1 200 OK ok",) * 2}
        assert script.most_open <= 3


async def test_a_client_that_leaves_while_it_waits_takes_nobodys_place() -> None:
    arrived: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        arrived.put_nowait(writer)
        await reader.read()

    async with (
        serving(slow) as port,
        proxied(f"http://127.0.0.1:{port}", 80, tokens=["t"], connections=1) as forward,
    ):
        _, first = await forward.connect()
        first.write(GET)
        await arrived.get()
        waiting = [await forward.connect() for _ in range(5)]
        for _, writer in waiting:
            writer.write(GET)
        while forward.status.sent_bytes < 6 * len(GET):
            await asyncio.sleep(0.01)
        for _, writer in waiting[:4]:
            writer.transport.abort()
        first.transport.abort()
        (await arrived.get()).write(OK)
        assert (await waiting[4][0].readuntil(b"ok")).startswith(b"HTTP/1.1 200 OK")


async def test_a_suspended_or_ended_sandbox_is_told_in_its_words() -> None:
    script = Scripted(*[plain(502)] * 8)
    async with serving(script.serve) as port, proxied(f"http://127.0.0.1:{port}", 80, tokens=["t"]) as forward:
        forward.explained = Conflict("`app` is suspended", hint="resume it with `sbx start app`")
        (answer,) = await ask(forward, GET)
        assert answer.startswith(b"HTTP/1.1 503 ") and b"sbx start app" in answer
        states = [forward.way.state]
        forward.explained = SandboxEnded("`app` was terminated")
        (answer,) = await ask(forward, GET)
        assert answer.startswith(b"HTTP/1.1 410 ")
        assert [*states, forward.way.state] == [TunnelState.PARKED, TunnelState.GONE]
        with pytest.raises(SandboxEnded):
            await forward.way.run()


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", 421),
        (GET + b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", 421),
        (b"\r\n" + GET + b"\r\nGET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", 421),
        (b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (b"SSH-2.0-x\r\n", 400),
        (b"GET http://localhost/ HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
    ],
)
async def test_what_may_not_pass_is_refused_before_the_endpoint_has_a_byte(request_bytes: bytes, status: int) -> None:
    script = Scripted()
    async with serving(script.serve) as port, proxied(f"http://127.0.0.1:{port}", 80, tokens=["t"]) as forward:
        reader, writer = await forward.connect()
        writer.write(request_bytes)
        answer = await reader.read()
        assert b"HTTP/1.1 %d " % status in answer
        assert len(script.heads) == request_bytes.count(GET)
        assert len(forward.trouble) == 1 and "refused: " in forward.trouble[0]


async def test_a_server_that_refuses_the_endpoints_name_brings_its_remedy_once() -> None:
    script = Scripted(*[plain(403, b'Blocked request. This host ("x") is not allowed.')] * 2)
    async with serving(script.serve) as port, proxied(f"http://127.0.0.1:{port}", 80, tokens=["t"]) as forward:
        await ask(forward, GET, GET)
        assert len(forward.trouble) == 1 and "__VITE_ADDITIONAL_SERVER_ALLOWED_HOSTS" in forward.trouble[0]


async def test_a_stalled_reader_holds_the_server_and_no_memory() -> None:
    sent_bytes = 0

    async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent_bytes
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        with contextlib.suppress(OSError):
            while True:
                writer.write(bytes(1 << 16))
                await writer.drain()
                sent_bytes += 1 << 16

    async with serving(pour) as port, proxied(f"http://127.0.0.1:{port}", 80, tokens=["t"]) as forward:
        _, stalled = await forward.connect()
        stalled.transport.pause_reading()  # type: ignore[attr-defined]
        stalled.write(GET)
        before = -1
        while before != sent_bytes or not sent_bytes:
            before = sent_bytes
            await asyncio.sleep(0.3)
        held = forward.status.received_bytes
        assert held < 64 << 20
        stalled.transport.abort()
