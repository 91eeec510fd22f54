"""33 probes of HTTP/1.1 and WebSocket through a forward: each says what must come back, byte by byte."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from tests.services.forward.origin import BLOCK, BLOCKS, ZIPPED, Origin

BIG_BYTES = len(BLOCK) * BLOCKS


@dataclass(frozen=True, slots=True)
class Answer:
    """What came: `raw` is the body as it was framed, `rest` what the connection had to its end."""

    start: bytes
    fields: list[tuple[bytes, bytes]]
    raw: bytes

    def values(self, name: bytes) -> list[bytes]:
        """Of a field, by lower-case name."""
        return [value for key, value in self.fields if key.lower() == name]


class Client:
    """One connection of a probe."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def ask(self, line: str, *fields: str, host: str = "localhost:5173") -> None:
        """Send a head."""
        self.writer.write("\r\n".join((f"{line} HTTP/1.1", f"Host: {host}", *fields, "", "")).encode("latin-1"))

    async def head(self) -> tuple[bytes, list[tuple[bytes, bytes]]]:
        """The next head."""
        start, *lines = (await self.reader.readuntil(b"\r\n\r\n"))[:-4].split(b"\r\n")
        pairs = (line.partition(b":") for line in lines)
        return start, [(name, value.strip()) for name, _, value in pairs]

    async def answer(self, *, has_body: bool = True) -> Answer:
        """The next answer, by its framing."""
        start, fields = await self.head()
        told = {name.lower(): value for name, value in fields}
        raw = b""
        if not has_body:
            pass
        elif b"content-length" in told:
            raw = await self.reader.readexactly(int(told[b"content-length"]))
        elif b"transfer-encoding" in told:
            while not raw.endswith((b"0\r\n\r\n", b"0;z\r\n\r\n", b"X-Sum: 6\r\n\r\n")):
                raw += await self.reader.readuntil(b"\r\n")
        else:
            raw = await self.reader.read()
        return Answer(start, fields, raw)

    async def get(self, target: str, *fields: str, has_body: bool = True) -> Answer:
        """Ask for a page, and its answer."""
        self.ask(f"GET {target}", *fields)
        return await self.answer(has_body=has_body)

    async def is_at_end(self) -> bool:
        """Whether nothing more comes; waits for it."""
        return await self.reader.read() == b""


@dataclass(frozen=True, slots=True)
class Place:
    """Where probes are made: this machine's ports of the server and of its WebSockets."""

    origin: Origin
    port: int
    ws_port: int

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        """A connection."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 20)
        try:
            yield Client(reader, writer)
        finally:
            writer.transport.abort()

    async def get(self, target: str, *fields: str, has_body: bool = True) -> Answer:
        """One page over a connection of its own, on which then nothing is left."""
        async with self.client() as client:
            answer = await client.get(target, *fields, has_body=has_body)
            if not answer.values(b"connection"):
                assert (await client.get("/empty")).start == b"HTTP/1.1 200 OK"
            return answer

    async def until_gone(self, target: bytes) -> None:
        """Wait until the server has heard that the client of a request left."""
        while await self.origin.gone.get() != target:
            pass

    @property
    def ws_url(self) -> str:
        """Of the WebSockets."""
        return f"ws://localhost:{self.ws_port}/"


Probe = Callable[[Place], Awaitable[None]]
PROBES: dict[str, Probe] = {}


def probe(made: Probe) -> Probe:
    """Put it into the table."""
    PROBES[made.__name__] = made
    return made


@probe
async def a_page_comes_whole(place: Place) -> None:
    answer = await place.get("/x")
    assert answer.start == b"HTTP/1.1 200 OK" and answer.raw.startswith(b"GET /x HTTP/1.1\n")


@probe
async def a_head_request_has_a_length_and_no_body(place: Place) -> None:
    async with place.client() as client:
        client.ask("HEAD /head")
        assert (await client.answer(has_body=False)).values(b"content-length") == [b"12345"]
        assert (await client.get("/empty")).raw == b""


@probe
async def no_content_has_no_body(place: Place) -> None:
    assert (await place.get("/204", has_body=False)).start.startswith(b"HTTP/1.1 204")


@probe
async def not_modified_keeps_its_length_and_has_no_body(place: Place) -> None:
    answer = await place.get("/304", has_body=False)
    assert (answer.values(b"content-length"), answer.values(b"etag")) == ([b"900"], [b'"x"'])


@probe
async def an_empty_body_is_empty(place: Place) -> None:
    assert (await place.get("/empty")).raw == b""


@probe
async def chunks_arrive_as_they_were_cut(place: Place) -> None:
    assert (await place.get("/chunked")).raw == b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"


@probe
async def trailers_arrive(place: Place) -> None:
    assert (await place.get("/trailers")).raw.endswith(b"0\r\nX-Sum: 6\r\n\r\n")


@probe
async def chunk_extensions_break_nothing(place: Place) -> None:
    assert (await place.get("/extensions")).raw.startswith(b"3;a=b\r\nabc")


@probe
async def a_body_without_a_length_ends_with_its_connection(place: Place) -> None:
    async with place.client() as client:
        assert (await client.get("/until-close")).raw == b"until the end"


@probe
async def an_answer_of_http_1_0_is_one(place: Place) -> None:
    async with place.client() as client:
        answer = await client.get("/1.0")
        assert answer.raw == b"old" and answer.start.endswith(b" 200 OK")


@probe
async def two_cookies_stay_two(place: Place) -> None:
    cookies = (await place.get("/cookies")).values(b"set-cookie")
    assert [cookie[:3] for cookie in cookies] == [b"a=1", b"b=2"]


@probe
async def odd_field_names_and_bytes_stay(place: Place) -> None:
    fields = dict((await place.get("/odd-names")).fields)
    assert (fields[b"x-LOWER-Upper"], fields[b"X-Empty"], fields[b"X-Bytes"]) == (b"1", b"", b"caf\xe9")


@probe
async def the_target_is_not_touched(place: Place) -> None:
    target = "/a/../b//c%2F%41?x=%20&y=[1]&&"
    assert (await place.get(target)).raw.startswith(f"GET {target} HTTP/1.1\n".encode())


@probe
async def fields_of_a_request_arrive_in_order(place: Place) -> None:
    raw = (await place.get("/x", "X-One: 1", "x-two: 2", "X-One: 3", "Cookie: a=b; c=d")).raw
    own = [line for line in raw.split(b"\n") if line.startswith((b"X-One", b"x-two"))]
    assert own == [b"X-One: 1", b"x-two: 2", b"X-One: 3"]
    assert b"Cookie: a=b; c=d" in raw


@probe
async def a_hundred_fields_arrive(place: Place) -> None:
    raw = (await place.get("/x", *(f"X-Field-{at}: {'v' * 300}" for at in range(100)))).raw
    assert raw.count(b"X-Field-") == 100


@probe
async def compressed_bytes_stay_compressed(place: Place) -> None:
    answer = await place.get("/gzip", "Accept-Encoding: gzip")
    assert (answer.raw, answer.values(b"content-encoding")) == (ZIPPED, [b"gzip"])


@probe
async def a_large_download_is_identical(place: Place) -> None:
    raw = (await place.get("/big")).raw
    assert hashlib.sha256(raw).digest() == hashlib.sha256(BLOCK * BLOCKS).digest()


@probe
async def a_large_upload_is_identical(place: Place) -> None:
    async with place.client() as client:
        client.ask("POST /digest", f"Content-Length: {BIG_BYTES}")
        for _ in range(BLOCKS):
            client.writer.write(BLOCK)
            await client.writer.drain()
        assert (await client.answer()).raw == hashlib.sha256(BLOCK * BLOCKS).digest()


@probe
async def a_chunked_upload_arrives_with_its_trailers(place: Place) -> None:
    async with place.client() as client:
        client.ask("PUT /digest", "Transfer-Encoding: chunked")
        for _ in range(4):
            client.writer.write(b"%x\r\n%b\r\n" % (len(BLOCK), BLOCK))
        client.writer.write(b"0\r\nX-Sum: 9\r\n\r\n")
        assert (await client.answer()).raw == hashlib.sha256(BLOCK * 4).digest() + b"X-Sum: 9\r\n"


@probe
async def who_waits_for_100_may_send(place: Place) -> None:
    async with place.client() as client:
        client.ask("POST /digest", "Content-Length: 3", "Expect: 100-continue")
        assert (await client.head())[0] == b"HTTP/1.1 100 Continue"
        client.writer.write(b"abc")
        assert (await client.answer()).raw == hashlib.sha256(b"abc").digest()


@probe
async def an_early_refusal_of_an_upload_arrives(place: Place) -> None:
    async with place.client() as client:
        client.ask("POST /early", f"Content-Length: {BIG_BYTES}")
        client.writer.write(BLOCK)
        answer = await client.answer()
        assert (answer.start[:12], answer.raw) == (b"HTTP/1.1 413", b"big")


@probe
async def early_hints_come_before_the_answer(place: Place) -> None:
    async with place.client() as client:
        client.ask("GET /hints")
        assert (await client.head())[0].startswith(b"HTTP/1.1 103")
        assert (await client.answer()).raw == b"hinted"


@probe
async def events_come_while_the_stream_is_open(place: Place) -> None:
    async with place.client() as client:
        client.ask("GET /events")
        start, _ = await client.head()
        assert start == b"HTTP/1.1 200 OK"
        assert await client.reader.readuntil(b"\n\n\r\n") == b"9\r\ndata: 1\n\n\r\n"


@probe
async def a_server_hears_of_a_client_that_left_a_stream(place: Place) -> None:
    async with place.client() as client:
        client.ask("GET /events?left")
        await client.head()
    await place.until_gone(b"/events?left")


@probe
async def a_server_hears_of_a_client_that_left_before_the_answer(place: Place) -> None:
    async with place.client() as client:
        client.ask("GET /silent")
        assert (await place.get("/x")).start == b"HTTP/1.1 200 OK"
    await place.until_gone(b"/silent")


@probe
async def requests_in_a_row_are_answered_in_order(place: Place) -> None:
    async with place.client() as client:
        for at in range(5):
            client.ask(f"GET /{at}")
        assert [(await client.answer()).raw[:7] for _ in range(5)] == [b"GET /%d " % at for at in range(5)]


@probe
async def a_hundred_requests_go_over_one_connection(place: Place) -> None:
    async with place.client() as client:
        for at in range(100):
            assert (await client.get(f"/{at}")).raw.startswith(b"GET /%d " % at)


@probe
async def who_wants_to_close_is_let_go(place: Place) -> None:
    async with place.client() as client:
        assert (await client.get("/x", "Connection: close")).raw
        assert await client.is_at_end()


@probe
async def a_client_of_http_1_0_is_served(place: Place) -> None:
    async with place.client() as client:
        client.writer.write(b"GET /empty HTTP/1.0\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert (await client.answer()).start.endswith(b" 200 OK")
        assert await client.is_at_end()


@probe
async def a_redirect_to_itself_stays_here(place: Place) -> None:
    async with place.client() as client:
        assert (await client.get("/elsewhere")).values(b"location") == [b"http://localhost:5173/next?a=1"]


@probe
async def an_unknown_method_passes(place: Place) -> None:
    async with place.client() as client:
        client.ask("PROPFIND /x", "Content-Length: 0")
        assert (await client.answer()).raw.startswith(b"PROPFIND /x HTTP/1.1\n")


@probe
async def a_websocket_has_its_subprotocol_and_large_messages(place: Place) -> None:
    message = BLOCK * 512
    async with connect(place.ws_url, subprotocols=["vite-hmr"], max_size=None, compression=None) as socket:  # type: ignore[list-item]
        assert socket.subprotocol == "vite-hmr"
        for sent in ("text", b"\x00\xff", message):
            await socket.send(sent)
            assert await socket.recv() == sent


@probe
async def a_websocket_closes_with_its_code_and_reason(place: Place) -> None:
    async with connect(place.ws_url) as socket:
        assert socket.subprotocol is None
        await socket.send("leave")
        try:
            await socket.recv()
        except ConnectionClosed as exc:
            assert exc.rcvd is not None and (exc.rcvd.code, exc.rcvd.reason) == (4001, "as you wish")
