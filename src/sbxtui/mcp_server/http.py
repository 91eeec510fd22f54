"""The same server over HTTP, for clients of this machine that cannot start a program: on loopback, with a token."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import ipaddress
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import uvicorn

from sbxtui.core.errors import AddressInUse, SbxError, UsageError
from sbxtui.core.text import harmless_line
from sbxtui.mcp_server.face import Face
from sbxtui.mcp_server.options import Options
from sbxtui.mcp_server.server import build_server
from sbxtui.settings import Settings

PATH = "/mcp"

_Scope = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
_Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
_App = Callable[[_Scope, _Receive, _Send], Awaitable[None]]


def listening(address: str) -> socket.socket:
    """A socket that listens on `HOST:PORT`, on loopback only; port 0 is any free one.

    Raises:
        UsageError: It is no address of loopback. AddressInUse: Another program has it.
    """
    host, _, port = address.rpartition(":")
    try:
        parsed = ipaddress.ip_address(host.strip("[]"))
        number = int(port)
    except ValueError as exc:
        told = harmless_line(address, limit=80)
        raise UsageError(f"`{told}` is no address to listen on", hint="like 127.0.0.1:8765") from exc
    if not parsed.is_loopback or not 0 <= number <= 65_535:
        raise UsageError(f"`{parsed}` is not this machine alone", hint="127.0.0.1 or [::1]: others must not reach it")
    listener = socket.socket(socket.AF_INET6 if parsed.version == 6 else socket.AF_INET)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((str(parsed), number))
        listener.listen()
    except OSError as exc:
        listener.close()
        raise AddressInUse(f"cannot listen on {address}: {exc.strerror or exc}", hint="choose another port") from exc
    return listener


def url_of(listener: socket.socket) -> str:
    """Where clients find it."""
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}{PATH}"


async def serve_http(settings: Settings, options: Options, listener: socket.socket, token: str) -> None:
    """Serve until this is cancelled or a signal comes; only requests with the token and a name of loopback pass."""
    face = Face(settings, options)
    app = build_server(face).streamable_http_app(streamable_http_path=PATH, host=listener.getsockname()[0])
    config = uvicorn.Config(guarded(trimmed(app), token), log_level="warning", ws="none", timeout_graceful_shutdown=2)
    server = uvicorn.Server(config)
    serving = asyncio.ensure_future(server.serve(sockets=[listener]))
    cut_off = asyncio.ensure_future(face.cut_off.wait())
    try:
        await asyncio.wait((serving, cut_off), return_when=asyncio.FIRST_COMPLETED)
        server.should_exit = True
        with contextlib.suppress(SbxError):
            await serving
    finally:
        cut_off.cancel()
        serving.cancel()
        await face.close()


def trimmed(app: _App) -> _App:
    """An application that gets headers without the blanks HTTP allows around their values.

    The library compares them with what a request says as they came.
    """

    async def trim(scope: _Scope, receive: _Receive, send: _Send) -> None:
        headers = [(name, value.strip(b" \t")) for name, value in scope.get("headers", ())]
        await app({**scope, "headers": headers}, receive, send)

    return trim


def guarded(app: _App, token: str) -> _App:
    """An application that answers 401 to who does not send the token."""
    wanted = f"Bearer {token}".encode()

    async def guard(scope: _Scope, receive: _Receive, send: _Send) -> None:
        sent = dict(scope.get("headers", ())).get(b"authorization", b"")
        if scope["type"] == "http" and not hmac.compare_digest(sent, wanted):
            headers = [(b"www-authenticate", b"Bearer"), (b"content-length", b"0")]
            await send({"type": "http.response.start", "status": 401, "headers": headers})
            await send({"type": "http.response.body"})
            return
        await app(scope, receive, send)

    return guard
