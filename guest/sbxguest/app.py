"""The guest's HTTP: a route, a request, a response, one shape of error. Plain ASGI, no framework; see `asgi.py`.

A module with endpoints exports `ROUTES: tuple[Route, ...]`; `server.py` puts the tables together.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from sbxguest.largebody import LargeBody
from sbxguest.state import Guest
from sbxguest.wire import ERROR_HEADER

log = logging.getLogger(__name__)

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

MAX_JSON_BYTES = 4 * 1024 * 1024


class WireError(Exception):
    """An answer other than success: becomes `{"error": {code, message, hint, details}}` with `status`."""

    def __init__(
        self, status: int, code: str, message: str, *, hint: str = "", details: Mapping[str, object] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.hint = hint
        self.details = dict(details or {})

    def document(self) -> dict[str, object]:
        """As it is on the wire."""
        return {"code": self.code, "message": self.message, "hint": self.hint, "details": self.details}


class Disconnected(Exception):
    """The client went away before its request had come in whole."""


class LastPiece(bytes):
    """A piece of a streamed body behind which nothing comes: the body's end goes out with it, in one write.

    Each write costs every hop on the way to the client a turn, and a short command's answer has few others.
    """


@dataclass(frozen=True, slots=True)
class Response:
    """An answer. A body that is an async iterator is streamed chunked, and closed when the client goes away.

    It ends with the iterator, or with a `LastPiece`.
    """

    status: int = 200
    body: bytes | AsyncIterator[bytes] = b""
    content_type: str = "application/octet-stream"
    headers: tuple[tuple[str, str], ...] = ()


def json_response(value: object, *, status: int = 200, headers: tuple[tuple[str, str], ...] = ()) -> Response:
    """`value` as a JSON document."""
    return Response(status, json.dumps(value, separators=(",", ":")).encode(), "application/json", headers)


def error_response(error: WireError) -> Response:
    """The one shape errors have on the wire."""
    return json_response({"error": error.document()}, status=error.status, headers=((ERROR_HEADER, error.code),))


@dataclass(slots=True)
class Request:
    """One request. `params` are the `{name}` parts of the route's path; `query` and `headers` (lower case names) keep
    the last value of a repeated name. `large` is its body where that is large, and its length was told."""

    guest: Guest
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    params: dict[str, str] = field(default_factory=dict)
    large: LargeBody | None = None
    _receive: Receive | None = None
    _is_read: bool = False

    async def stream(self) -> AsyncGenerator[bytes, None]:
        """The body in pieces as they arrive; at most once.

        Raises:
            Disconnected: The client went away before the end.
        """
        if self.large is not None:
            async with aclosing(self.views(self.large, is_prompt=True)) as views:
                async for view in views:
                    yield bytes(view)
            return
        while not self._is_read and self._receive is not None:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise Disconnected
            self._is_read = not message.get("more_body", False)
            if body := message.get("body", b""):
                yield body

    async def views(self, large: LargeBody, *, is_prompt: bool = False) -> AsyncGenerator[memoryview, None]:
        """The same of its large body, each in memory that is used again once the next one is asked for.

        Raises:
            Disconnected: See `stream`; what arrived was yielded.
        """
        async with aclosing(large.pieces(is_prompt=is_prompt)) as pieces:
            async for piece in pieces:
                yield piece
        if large.is_cut:
            raise Disconnected

    async def body(self, *, limit_bytes: int = MAX_JSON_BYTES) -> bytes:
        """The whole body.

        Raises:
            WireError: 413, it is larger than `limit_bytes`.
        """
        pieces: list[bytes] = []
        size_bytes = 0
        async with aclosing(self.stream()) as stream:
            async for piece in stream:
                size_bytes += len(piece)
                if size_bytes > limit_bytes:
                    raise WireError(413, "too_large", f"the request body is larger than {limit_bytes} bytes")
                pieces.append(piece)
        return b"".join(pieces)

    async def json(self, *, limit_bytes: int = MAX_JSON_BYTES) -> dict[str, Any]:
        """The body as a JSON object.

        Raises:
            WireError: 413 too large, 400 not a JSON object.
        """
        try:
            value = json.loads(await self.body(limit_bytes=limit_bytes) or b"{}")
        except (ValueError, RecursionError) as exc:
            raise WireError(400, "bad_json", "the request body is not JSON") from exc
        if not isinstance(value, dict):
            raise WireError(400, "bad_json", "the request body must be a JSON object")
        return value

    def number(self, name: str, default: float, *, low: float = 0, high: float = float(2**63)) -> float:
        """A number of the query string, within bounds.

        Raises:
            WireError: 400, it is something else.
        """
        text = self.query.get(name, "")
        if not text:
            return default
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not low <= value <= high:
            raise WireError(400, "bad_query", f"`{name}` must be a number from {low:g} to {high:g}")
        return value

    def whole(self, name: str, default: int) -> int:
        """A whole number ≥ 0 of the query string, exact to 63 bits.

        Raises:
            WireError: 400, it is something else.
        """
        text = self.query.get(name, "")
        if not text:
            return default
        if not (text.isascii() and text.isdecimal() and len(text) <= 18):
            raise WireError(400, "bad_query", f"`{name}` must be a whole number")
        return int(text)

    def flag(self, name: str) -> bool:
        """Whether the query string has `name=1`."""
        return self.query.get(name, "") in ("1", "true")

    def leave_rest(self) -> None:
        """Take no more of the body: a client that sends on is not kept waiting by it. Safe to repeat."""
        if self.large is not None:
            self.large.drop()

    async def until_disconnect(self) -> None:
        """Return when the client has gone away. What nobody read of the body by now is left."""
        self.leave_rest()
        while self._receive is not None and (await self._receive())["type"] != "http.disconnect":
            pass


Handler = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Route:
    """`method` and `path` (`/v2/jobs/{id}/log`; a `{name}` is one segment) to a handler.

    `is_always_open` routes answer even before /run.
    """

    method: str
    path: str
    handler: Handler
    is_always_open: bool = False
