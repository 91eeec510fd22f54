"""The guest's HTTP: a table of routes, a request, a response, one shape of error. Plain ASGI, no framework.

A module with endpoints exports `ROUTES: tuple[Route, ...]`; `server.py` puts the tables together.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping, MutableMapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

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


class Disconnected(Exception):
    """The client went away before its request had come in whole."""


@dataclass(frozen=True, slots=True)
class Response:
    """An answer. A body that is an async iterator is streamed chunked, and closed when the client goes away."""

    status: int = 200
    body: bytes | AsyncIterator[bytes] = b""
    content_type: str = "application/octet-stream"
    headers: tuple[tuple[str, str], ...] = ()


def json_response(value: object, *, status: int = 200, headers: tuple[tuple[str, str], ...] = ()) -> Response:
    """`value` as a JSON document."""
    return Response(status, json.dumps(value, separators=(",", ":")).encode(), "application/json", headers)


def error_response(error: WireError) -> Response:
    """The one shape errors have on the wire."""
    body = {"code": error.code, "message": error.message, "hint": error.hint, "details": error.details}
    return json_response({"error": body}, status=error.status, headers=((ERROR_HEADER, error.code),))


@dataclass(slots=True)
class Request:
    """One request. `params` are the `{name}` parts of the route's path; `query` and `headers` (lower case names) keep
    the last value of a repeated name."""

    guest: Guest
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    params: dict[str, str] = field(default_factory=dict)
    _receive: Receive | None = None
    _is_read: bool = False

    async def stream(self) -> AsyncGenerator[bytes, None]:
        """The body in pieces as they arrive; at most once.

        Raises:
            Disconnected: The client went away before the end.
        """
        while not self._is_read and self._receive is not None:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise Disconnected
            self._is_read = not message.get("more_body", False)
            if body := message.get("body", b""):
                yield body

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

    async def until_disconnect(self) -> None:
        """Return when the client has gone away. Only after the body was read."""
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


class Router:
    """Finds a route: by exact path, else segment by segment."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._exact: dict[str, dict[str, Route]] = {}
        self._patterns: list[tuple[list[str], dict[str, Route]]] = []
        for route in routes:
            self._methods_of(route.path)[route.method] = route

    def _methods_of(self, path: str) -> dict[str, Route]:
        if "{" not in path:
            return self._exact.setdefault(path, {})
        segments = path.split("/")
        for known, methods in self._patterns:
            if known == segments:
                return methods
        self._patterns.append((segments, {}))
        return self._patterns[-1][1]

    def find(self, method: str, path: str) -> tuple[Route, dict[str, str]]:
        """The route and its path parameters.

        Raises:
            WireError: 404 nothing is there; 405 something is, for other methods (HEAD is served as GET).
        """
        methods, params = self._match(path)
        route = methods.get(method) or (methods.get("GET") if method == "HEAD" else None)
        if route is not None:
            return route, params
        if methods:
            raise WireError(405, "method_not_allowed", f"{method} is not possible on {path[:200]}")
        raise WireError(
            404, "unsupported", f"this guest has no {path[:200]}", hint="an image with a newer guest may have it"
        )

    def _match(self, path: str) -> tuple[dict[str, Route], dict[str, str]]:
        if path in self._exact:
            return self._exact[path], {}
        parts = path.split("/")
        for segments, methods in self._patterns:
            if len(segments) != len(parts):
                continue
            params: dict[str, str] = {}
            for segment, part in zip(segments, parts, strict=True):
                if segment.startswith("{") and part:
                    params[segment[1:-1]] = part
                elif segment != part:
                    break
            else:
                return methods, params
        return {}, {}


class App:
    """The ASGI application over a router."""

    def __init__(self, guest: Guest, routes: Iterable[Route]) -> None:
        self._guest = guest
        self._router = Router(routes)

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1000})
            return
        request = Request(
            self._guest,
            scope["method"],
            scope["path"],
            dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True, errors="surrogateescape")),
            {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]},
            _receive=receive,
        )
        try:
            response = await self._answer(request)
        except Disconnected:
            return
        await _send(response, request, send)

    async def _answer(self, request: Request) -> Response:
        try:
            route, request.params = self._router.find(request.method, request.path)
            if not (route.is_always_open or self._guest.state.is_open):
                raise WireError(503, "not_ready", "this sandbox waits for its /run hook", hint="try again shortly")
            return await route.handler(request)
        except WireError as error:
            return error_response(error)
        except Disconnected:
            raise
        except Exception:  # the request boundary: one bad request must not end the server
            log.exception("%s %s failed", request.method, request.path)
            return error_response(WireError(500, "internal", "the guest failed on this request; its log says why"))


async def _send(response: Response, request: Request, send: Send) -> None:
    headers = [(b"content-type", response.content_type.encode())]
    headers += [(name.encode(), value.encode()) for name, value in response.headers]
    if isinstance(response.body, bytes):
        headers.append((b"content-length", str(len(response.body)).encode()))
        await send({"type": "http.response.start", "status": response.status, "headers": headers})
        await send({"type": "http.response.body", "body": response.body})
        return
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    pump = asyncio.create_task(_pump(response.body, send))
    gone = asyncio.create_task(request.until_disconnect())
    try:
        await asyncio.wait((pump, gone), return_when=asyncio.FIRST_COMPLETED)
    finally:
        gone.cancel()
        if not pump.done():
            pump.cancel()
        await asyncio.gather(pump, gone, return_exceptions=True)
    if not pump.cancelled() and (error := pump.exception()) is not None:
        # The head is out: cutting the connection is the only honest way left to say that the body is not whole.
        raise error


async def _pump(body: AsyncIterator[bytes], send: Send) -> None:
    try:
        async for piece in body:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
    finally:
        aclose = getattr(body, "aclose", None)
        if aclose is not None:
            await aclose()
    await send({"type": "http.response.body", "body": b""})
