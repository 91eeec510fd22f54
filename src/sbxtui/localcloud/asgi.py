"""The ASGI side of the API's port that its services share: bodies, answers, and which service a request is for."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, MutableMapping
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sbxtui.localcloud import faults, logsapi
from sbxtui.localcloud.faults import Fault, FaultBody

BODY_TIMEOUT_S = 30.0
_PIECE_BYTES = 1 << 18
_S3_SCOPE = re.compile(rb"Credential=[^/,\s]+/[^/,\s]+/[^/,\s]+/s3/|X-Amz-Credential=[^&]*%2Fs3%2F")

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Answer:
    """One response; where there is a `file`, so many bytes of it from `offset` are its body, and where there are
    `pieces` they are, for as long as the client is there.

    With `cut_after` the connection is closed behind so many bytes of the body.
    """

    status: int
    body: bytes = b""
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()
    file: Path | None = None
    offset: int = 0
    size_bytes: int = 0
    cut_after: int | None = None
    pieces: AsyncGenerator[bytes, None] | None = None


def service_of(scope: Message) -> str:
    """The service that a request is for, as signatures name it: all are served on one port."""
    if _S3_SCOPE.search(_authorization(scope["headers"]) + scope["query_string"]):
        return "s3"
    if scope["raw_path"] != b"/":
        return "lambda"
    return "logs" if logsapi.is_for_logs(scope["headers"]) else "sts"


async def body_pieces(receive: Receive) -> AsyncIterator[bytes]:
    """A request's body as it comes.

    Raises:
        Fault: 400, it ended early; 408, nothing came for a while.
    """
    has_more = True
    try:
        while has_more:
            async with asyncio.timeout(BODY_TIMEOUT_S):
                piece, has_more = await _next_piece(receive)
            yield piece
    except TimeoutError as exc:
        raise _too_slow() from exc


async def read_body(receive: Receive, most_bytes: int) -> bytes:
    """A whole body.

    Raises:
        Fault: 413, it is larger; else as `body_pieces`.
    """
    body, has_more = bytearray(), True
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            while has_more:
                piece, has_more = await _next_piece(receive)
                body += piece
                if len(body) > most_bytes:
                    raise Fault(FaultBody("RequestEntityTooLargeException", 413, "The request body is too large"))
    except TimeoutError as exc:
        raise _too_slow() from exc
    return bytes(body)


async def send_answer(receive: Receive, send: Send, answer: Answer, request_id: str) -> None:
    """Send it."""
    size = answer.size_bytes if answer.size_bytes else len(answer.body)
    own = {name.lower() for name, _ in answer.headers}
    headers = [
        *([("Content-Type", answer.content_type)] if "content-type" not in own else []),
        *([("Content-Length", str(size))] if answer.pieces is None else []),
        ("x-amzn-RequestId", request_id),
        *answer.headers,
    ]
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    await send({"type": "http.response.start", "status": answer.status, "headers": raw})
    if answer.pieces is not None:
        await _send_pieces(receive, send, answer.pieces)
        return
    if answer.cut_after is not None:
        # The server closes a connection whose answer is not finished.
        await send({"type": "http.response.body", "body": answer.body[: answer.cut_after], "more_body": True})
        return
    if answer.file is None or not answer.size_bytes:
        await send({"type": "http.response.body", "body": answer.body})
        return
    with answer.file.open("rb") as source:
        source.seek(answer.offset)
        left = answer.size_bytes
        while left:
            piece = await asyncio.to_thread(source.read, min(_PIECE_BYTES, left))
            left -= len(piece)
            await send({"type": "http.response.body", "body": piece, "more_body": left > 0})
            if not piece:
                return


async def _send_pieces(receive: Receive, send: Send, pieces: AsyncGenerator[bytes, None]) -> None:
    leaving = asyncio.ensure_future(receive())
    try:
        async with aclosing(pieces):
            async for piece in pieces:
                if leaving.done():
                    return
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body"})
    finally:
        leaving.cancel()


async def _next_piece(receive: Receive) -> tuple[bytes, bool]:
    message = await receive()
    if message["type"] == "http.disconnect":
        raise faults.serialization("The request body ended early")
    return message.get("body", b""), message.get("more_body", False)


def _too_slow() -> Fault:
    return Fault(FaultBody("RequestTimeoutException", 408, "The request body did not arrive in time"))


def _authorization(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    return next((value for name, value in headers if name.lower() == b"authorization"), b"")
