"""The guest's WebSockets: a route, a connection."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from sbxguest.app import Disconnected, Receive, Request, Response, Send
from sbxguest.mux.frames import Part

# Names the server's side of a connection among the extensions of its scope.
DIRECT = "sbx.direct"


class Direct(Protocol):
    """The server's side of a connection, for a handler that takes what messages carry as it comes."""

    def listen(self, on_bytes: Callable[[Part], None] | None, on_paused: Callable[[bool], None] | None) -> None:
        """Hand over what binary messages carry, and say whether what is written waits; None: no more.

        Neither may raise, nor keep what it gets: that lies where others will write soon.
        """
        ...

    def write_message(self, parts: Sequence[Part]) -> None:
        """Send one of these parts at once, or keep it."""
        ...


class WebSocket:
    """One connection; the App closes it when its handler returns.

    Args:
        receive: Of ASGI.
        send: Of ASGI.
        direct: The same connection, for a handler that takes bytes as they come; `receive` then tells its end.
    """

    def __init__(self, receive: Receive, send: Send, direct: Direct) -> None:
        self.direct = direct
        self._receive = receive
        self._send = send
        self.is_accepted = False

    async def accept(self) -> None:
        """Take the connection."""
        await self._receive()
        self.is_accepted = True
        await self._send({"type": "websocket.accept"})

    async def receive(self) -> bytes | None:
        """The next binary message; a text message counts as an empty one. None when the client has gone."""
        message = await self._receive()
        return None if message["type"] == "websocket.disconnect" else message.get("bytes") or b""

    async def send(self, data: bytes) -> None:
        """Send one binary message; waits while the client reads nothing.

        Raises:
            Disconnected: The client has gone.
        """
        try:
            await self._send({"type": "websocket.send", "bytes": data})
        except OSError as exc:
            raise Disconnected from exc

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """Close it; harmless on one that is closed."""
        with contextlib.suppress(OSError, RuntimeError):
            await self._send({"type": "websocket.close", "code": code, "reason": reason})

    async def refuse(self, answer: Response) -> None:
        """Answer the handshake with an error instead."""
        await self._receive()
        headers = [(b"content-type", answer.content_type.encode())]
        headers += [(name.encode(), value.encode()) for name, value in answer.headers]
        start = {"type": "websocket.http.response.start", "status": answer.status, "headers": headers}
        with contextlib.suppress(OSError):
            await self._send(start)
            await self._send({"type": "websocket.http.response.body", "body": answer.body})


SocketHandler = Callable[[Request, WebSocket], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class SocketRoute:
    """A path to a handler of WebSockets, which raises WireError before it accepts to refuse one."""

    path: str
    handler: SocketHandler
    method: str = "WEBSOCKET"
