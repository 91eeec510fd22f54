"""One HTTP/1.1 connection: a request out, its answer in, with back-pressure both ways. httptools does the parsing.

httpx does the same for ten times the import and, through TLS, half the throughput, and every command of the command
line would pay for both.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Mapping
from typing import cast

import httptools

from sbxtui.core.values import dataclass

Body = bytes | AsyncIterable[bytes] | None
# A piece is what one read of the event loop brings, 256 KiB at most; four of them wait for a reader, then it is the
# sender who waits.
_HELD_BYTES = 1024 * 1024
_LARGE_BYTES = 16 * 1024
_UNSENT_BYTES = 512 * 1024
_MAX_HEAD_BYTES = 64 * 1024
_FORBIDDEN = frozenset("\r\n\0")


class HttpError(Exception):
    """The connection could not be made or broke, or what came over it is no HTTP.

    `was_sent` is false where the other side certainly got nothing of the request.
    """

    def __init__(self, message: str, *, was_sent: bool = True) -> None:
        super().__init__(message)
        self.was_sent = was_sent


class HttpTimeout(HttpError):
    """The other side let us wait for too long."""


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds until a connection stands, for each wait for bytes, and for each wait until more of a body is taken."""

    connect_s: float = 10.0
    answer_s: float = 30.0
    send_s: float = 30.0


class Answer:
    """An answer whose body is still coming.

    Attributes:
        status: Of HTTP.
        headers: By lower-case name; repeated ones joined by a comma.
    """

    def __init__(self, incoming: _Incoming, next_piece: Callable[[], Awaitable[bytes]], whole_s: float) -> None:
        self.status = incoming.status
        self.headers: Mapping[str, str] = incoming.headers
        self._next_piece = next_piece
        self._whole_s = whole_s

    @property
    def is_success(self) -> bool:
        """Whether it is one of 200 to 299."""
        return 200 <= self.status < 300

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """The body, or what is left of it, as it comes.

        Raises:
            HttpError: It was cut off. HttpTimeout: Nothing came for too long.
        """
        while piece := await self._next_piece():
            yield piece

    async def prompt_pieces(self) -> AsyncGenerator[bytes, None]:
        """The same for a body nobody can use before its end: all of it has the time of one wait, however it trickles.

        Raises:
            HttpError: It was cut off. HttpTimeout: It did not end in time.
        """
        due_s = asyncio.get_running_loop().time() + self._whole_s
        while True:
            try:
                async with asyncio.timeout_at(due_s):
                    piece = await self._next_piece()
            except TimeoutError:
                raise HttpTimeout("the answer did not come to its end in time") from None
            if not piece:
                return
            yield piece


class _Incoming:
    """What has come of one answer: callbacks of httptools' parser."""

    def __init__(self, *, is_head_only: bool) -> None:
        self.parser = httptools.HttpResponseParser(self)
        self.status = 0
        self.headers: dict[str, str] = {}
        self.has_head = False
        self.is_whole = False
        self.keeps_alive = False
        self.held_bytes = 0
        self._is_head_only = is_head_only
        self._header_bytes = 0
        self._bytes_without_body = 0
        self._is_interim = False
        self._pieces: deque[bytes] = deque()

    def feed(self, data: bytes) -> None:
        """Take more bytes of the answer; raises HttpError."""
        held_bytes = self.held_bytes
        try:
            self.parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as exc:
            raise HttpError("what came is no HTTP answer") from exc
        # The parser keeps a header or trailer until it is whole, however long that is.
        self._bytes_without_body = 0 if self.held_bytes > held_bytes else self._bytes_without_body + len(data)
        is_unending = self._bytes_without_body > _MAX_HEAD_BYTES and not self.is_whole
        if is_unending or self._header_bytes > _MAX_HEAD_BYTES:
            raise HttpError(f"the answer has more than {_MAX_HEAD_BYTES} bytes of headers")

    def take(self) -> bytes:
        """What is here of the body: a large piece by itself, as it came, small ones together."""
        pieces = self._pieces
        if pieces and len(pieces[0]) >= _LARGE_BYTES:
            data = pieces.popleft()
        else:
            data = b"".join(pieces)
            pieces.clear()
        self.held_bytes -= len(data)
        return data

    def end_by_close(self) -> None:
        """The connection ended: that is how a body without a length ends; every other one is cut off."""
        is_framed = "content-length" in self.headers or "transfer-encoding" in self.headers
        self.is_whole = self.is_whole or (self.has_head and not is_framed)

    def on_message_begin(self) -> None:
        """Of httptools."""
        if self.has_head:
            raise HttpError("something came behind the answer")
        self.headers.clear()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Of httptools."""
        self._header_bytes += len(name) + len(value)
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        self.headers[key] = f"{self.headers[key]}, {text}" if key in self.headers else text

    def on_headers_complete(self) -> None:
        """Of httptools."""
        self.status = self.parser.get_status_code()
        self._is_interim = 100 <= self.status < 200
        self.has_head = not self._is_interim
        self.is_whole = self.has_head and self._is_head_only

    def on_body(self, data: bytes) -> None:
        """Of httptools."""
        self._pieces.append(data)
        self.held_bytes += len(data)

    def on_message_complete(self) -> None:
        """Of httptools."""
        if not self._is_interim:
            self.is_whole = True
            self.keeps_alive = self.parser.should_keep_alive() and not self._is_head_only


class Connection(asyncio.Protocol):
    """One connection, for one request at a time. `asyncio` makes it; `request` uses it."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._incoming: _Incoming | None = None
        self._fault: HttpError | None = None
        self._changed: asyncio.Future[None] | None = None
        self._is_paused = False
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._is_sent = True
        self._has_ended = asyncio.Event()

    @property
    def is_reusable(self) -> bool:
        """Whether the next request can go over it."""
        incoming = self._incoming
        is_free = incoming is None or (incoming.is_whole and incoming.keeps_alive and not incoming.held_bytes)
        return is_free and self._is_sent and self._fault is None

    async def close(self) -> None:
        """End it at once."""
        if self._transport is not None:
            self._transport.abort()
            await self._has_ended.wait()

    async def request(self, head: bytes, body: Body, *, is_chunked: bool, patience: Patience) -> Answer:
        """Send a request and wait for the head of its answer.

        Args:
            head: Request line and headers with the empty line.
            body: Sent while the answer is awaited; one that is refused early is not sent to its end.
            is_chunked: Send a body of unknown length in chunks.
            patience: For every wait.

        Raises:
            HttpError: The connection broke. HttpTimeout: It took too long. Whatever iterating `body` raises.
        """
        incoming = self._incoming = _Incoming(is_head_only=head.startswith(b"HEAD "))
        if body is None or isinstance(body, bytes):
            self._write(head + (body or b""))
            await self._head(incoming, patience)
        else:
            self._is_sent = False
            self._write(head)
            await self._send_and_await_head(incoming, body, is_chunked, patience)
        return Answer(incoming, lambda: self._next_piece(incoming, patience), patience.answer_s)

    async def _send_and_await_head(
        self, incoming: _Incoming, body: AsyncIterable[bytes], is_chunked: bool, patience: Patience
    ) -> None:
        sending = asyncio.create_task(self._send(body, is_chunked, patience))
        # The answer is due when the body is sent, however long that takes.
        heading = asyncio.create_task(self._wait_until(lambda: incoming.has_head))
        try:
            await asyncio.wait((sending, heading), return_when=asyncio.FIRST_COMPLETED)
            if sending.done() and not self._is_refusal(incoming):
                await sending
            if not sending.done() and not self._is_refusal(incoming):
                await heading
                await sending
            await self._head(incoming, patience)
        finally:
            sending.cancel()
            heading.cancel()
            await asyncio.gather(sending, heading, return_exceptions=True)

    @staticmethod
    def _is_refusal(incoming: _Incoming) -> bool:
        return incoming.has_head and incoming.status >= 400

    async def _send(self, body: AsyncIterable[bytes], is_chunked: bool, patience: Patience) -> None:
        try:
            async for piece in body:
                if piece:
                    write = self._write_chunk if is_chunked else self._write
                    write(piece)
                    await self._until_taken(patience)
        finally:
            await let_go(body)
        if is_chunked:
            self._write(b"0\r\n\r\n")
        self._is_sent = True

    def _write_chunk(self, piece: bytes) -> None:
        if len(piece) < _LARGE_BYTES:
            self._write(b"%x\r\n%b\r\n" % (len(piece), piece))
            return
        # Putting large ones together would take longer than sending them does.
        for part in (b"%x\r\n" % len(piece), piece, b"\r\n"):
            self._write(part)

    async def _until_taken(self, patience: Patience) -> None:
        try:
            async with asyncio.timeout(patience.send_s):
                await self._may_write.wait()
        except TimeoutError:
            raise HttpTimeout("the body of the request is not taken") from None

    async def _head(self, incoming: _Incoming, patience: Patience) -> None:
        await self._within(patience, lambda: incoming.has_head)

    async def _next_piece(self, incoming: _Incoming, patience: Patience) -> bytes:
        """What is here of the body, else what comes next; empty at its end."""
        if not incoming.held_bytes and not incoming.is_whole:
            await self._within(patience, lambda: bool(incoming.held_bytes) or incoming.is_whole)
        piece = incoming.take()
        if self._is_paused and incoming.held_bytes <= _HELD_BYTES and self._transport is not None:
            self._is_paused = False
            self._transport.resume_reading()
        return piece

    async def _within(self, patience: Patience, holds: Callable[[], bool]) -> None:
        try:
            async with asyncio.timeout(patience.answer_s):
                await self._wait_until(holds)
        except TimeoutError:
            raise HttpTimeout("nothing came in time") from None

    async def _wait_until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            if self._fault is not None:
                raise self._fault
            if self._changed is None:
                self._changed = asyncio.get_running_loop().create_future()
            # Sender and reader may both wait; a cancel of one is none of the other.
            await asyncio.shield(self._changed)

    def _wake(self) -> None:
        if self._changed is not None:
            self._changed.set_result(None)
            self._changed = None

    def _write(self, data: bytes) -> None:
        if self._fault is not None:
            raise self._fault
        if self._transport is not None:
            self._transport.write(data)

    def _break(self, fault: HttpError) -> None:
        self._fault = self._fault or fault
        self._may_write.set()
        self._wake()
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Of asyncio."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=_UNSENT_BYTES)

    def data_received(self, data: bytes) -> None:
        """Of asyncio."""
        if self._incoming is None or self._incoming.is_whole:
            self._break(HttpError("bytes came that nobody asked for"))
            return
        try:
            self._incoming.feed(data)
        except HttpError as exc:
            self._break(exc)
            return
        if self._incoming.held_bytes > _HELD_BYTES and not self._is_paused and self._transport is not None:
            self._is_paused = True
            self._transport.pause_reading()
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """Of asyncio."""
        if self._incoming is not None and exc is None:
            self._incoming.end_by_close()
        fault = HttpError(str(exc) or "the connection was closed" if exc else "the other side closed the connection")
        fault.__cause__ = exc
        self._fault = self._fault or fault
        self._may_write.set()
        self._wake()
        self._has_ended.set()

    def pause_writing(self) -> None:
        """Of asyncio."""
        self._may_write.clear()

    def resume_writing(self) -> None:
        """Of asyncio."""
        self._may_write.set()


async def let_go(body: AsyncIterable[bytes]) -> None:
    """Have what is sent no further let go of its file now, not when somebody collects it. Safe to repeat."""
    if isinstance(body, AsyncGenerator):
        await body.aclose()


def request_head(method: str, target: str, headers: Mapping[str, str]) -> bytes:
    """Request line and headers as they are sent.

    Raises:
        HttpError: Something in them would end a line.
    """
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    if any(_FORBIDDEN & set(line) for line in lines) or " " in target:
        raise HttpError("a request with a line break, a blank or a NUL where none may be")
    with contextlib.suppress(UnicodeEncodeError):
        return "\r\n".join(lines).encode("latin-1")
    raise HttpError("a request with a character that headers cannot carry")
