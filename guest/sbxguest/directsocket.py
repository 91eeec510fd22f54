"""WebSockets whose messages can be had without a task and a queue in between. Imported when the first one comes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.http11 import Request

from sbxguest.mux import near
from sbxguest.mux.frames import Part
from sbxguest.mux.gather import Gatherer
from sbxguest.mux.intake import Intake
from sbxguest.mux.messages import MessageReader, framed
from sbxguest.sockets import DIRECT


class DirectSocket(WebSocketsSansIOProtocol, asyncio.BufferedProtocol):
    """uvicorn's, of which a handler can take what messages carry as it comes; see `sockets.Direct`."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._on_paused: Callable[[bool], None] | None = None
        self._reader = MessageReader(is_masked=True, on_other=super().data_received)
        self._intake = Intake()
        self._gatherer: Gatherer | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Of asyncio."""
        super().connection_made(transport)
        near.tune(transport.get_extra_info("socket"))

    def listen(self, on_bytes: Callable[[Part], None] | None, on_paused: Callable[[bool], None] | None) -> None:
        """Of `Direct`: what came before goes first."""
        self._reader.on_bytes, self._on_paused = on_bytes, on_paused
        if on_bytes is None:
            return
        waiting = [self.queue.get_nowait() for _ in range(self.queue.qsize())]
        for message in waiting:
            if message["type"] == "websocket.receive":
                on_bytes(message.get("bytes") or b"")
            else:
                self.queue.put_nowait(message)
        if self.read_paused:
            self.read_paused = False
            self.transport.resume_reading()

    def write_message(self, parts: Sequence[Part]) -> None:
        """Of `Direct`."""
        if not self.close_sent and not self.disconnected and not self.transport.is_closing():
            self._gatherer = self._gatherer or Gatherer(self.transport)
            self._gatherer.write(framed(parts))

    def get_buffer(self, sizehint: int) -> memoryview:
        """Of asyncio."""
        return self._intake.room()

    def buffer_updated(self, nbytes: int) -> None:
        """Of asyncio: uvicorn handed over the request, and what comes now are frames."""
        self._reader.feed(self._intake.filled(nbytes))

    def handle_connect(self, event: Request) -> None:
        """Of uvicorn: the handler finds us among the extensions of its scope."""
        super().handle_connect(event)
        if self.response.status_code == 101:
            self.scope["extensions"][DIRECT] = self  # type: ignore[assignment]  # servers may add their own

    def pause_writing(self) -> None:
        """Of asyncio."""
        super().pause_writing()
        if self._on_paused is not None:
            self._on_paused(True)

    def resume_writing(self) -> None:
        """Of asyncio."""
        super().resume_writing()
        if self._on_paused is not None:
            self._on_paused(False)
