"""The ASGI application: from a scope to a route's handler, and from its answer to messages."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterable, MutableMapping
from typing import Any
from urllib.parse import parse_qsl

from sbxguest.app import Disconnected, LastPiece, Receive, Request, Response, Route, Send, WireError, error_response
from sbxguest.largebody import LARGE
from sbxguest.router import Router
from sbxguest.sockets import DIRECT, SocketRoute, WebSocket
from sbxguest.state import Guest

log = logging.getLogger(__name__)


class App:
    """The ASGI application over two routers, one for requests and one for WebSockets."""

    def __init__(self, guest: Guest, routes: Iterable[Route], sockets: Iterable[SocketRoute] = ()) -> None:
        self._guest = guest
        self._router = Router(routes)
        self._sockets = Router(sockets)

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        is_socket = scope["type"] == "websocket"
        request = Request(
            self._guest,
            "WEBSOCKET" if is_socket else scope["method"],
            scope["path"],
            dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True, errors="surrogateescape")),
            {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]},
            large=scope.get("extensions", {}).get(LARGE),
            _receive=None if is_socket else receive,
        )
        try:
            with contextlib.suppress(Disconnected):
                if is_socket:
                    await self._serve_socket(request, WebSocket(receive, send, scope["extensions"][DIRECT]))
                else:
                    await _send(await self._answer(request), request, send)
        finally:
            request.leave_rest()

    async def _answer(self, request: Request) -> Response:
        try:
            route, request.params = self._router.find(request.method, request.path)
            if not route.is_always_open:
                self._check_open()
            return await route.handler(request)
        except WireError as error:
            return error_response(error)
        except Disconnected:
            raise
        except Exception:  # the request boundary: one bad request must not end the server
            log.exception("%s %s failed", request.method, request.path)
            return error_response(_internal())

    async def _serve_socket(self, request: Request, socket: WebSocket) -> None:
        try:
            route, request.params = self._sockets.find(request.method, request.path)
            self._check_open()
            await route.handler(request, socket)
            await socket.close()
        except WireError as error:
            await socket.refuse(error_response(error))
        except Disconnected:
            raise
        except Exception:  # the same boundary
            log.exception("%s %s failed", request.method, request.path)
            await (socket.close(1011) if socket.is_accepted else socket.refuse(error_response(_internal())))

    def _check_open(self) -> None:
        if not self._guest.state.is_open:
            raise WireError(503, "not_ready", "this sandbox waits for its /run hook", hint="try again shortly")


def _internal() -> WireError:
    return WireError(500, "internal", "the guest failed on this request; its log says why")


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
            is_last = isinstance(piece, LastPiece)
            await send({"type": "http.response.body", "body": piece, "more_body": not is_last})
            if is_last:
                return
    finally:
        aclose = getattr(body, "aclose", None)
        if aclose is not None:
            await aclose()
    await send({"type": "http.response.body", "body": b""})
