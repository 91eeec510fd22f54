"""WebSockets whose messages can be had without a task and a queue in between. Imported when the first one comes."""

from __future__ import annotations

from collections.abc import Callable

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame
from websockets.http11 import Request

from sbxguest.sockets import DIRECT


class DirectSocket(WebSocketsSansIOProtocol):
    """uvicorn's, of which a handler can take the messages as they come; see `sockets.Direct`."""

    _on_message: Callable[[bytes], None] | None = None
    _on_paused: Callable[[bool], None] | None = None

    def listen(self, on_message: Callable[[bytes], None] | None, on_paused: Callable[[bool], None] | None) -> None:
        """Of `Direct`: what came before goes first."""
        self._on_message, self._on_paused = on_message, on_paused
        if on_message is None:
            return
        waiting = [self.queue.get_nowait() for _ in range(self.queue.qsize())]
        for message in waiting:
            if message["type"] == "websocket.receive":
                on_message(message.get("bytes") or b"")
            else:
                self.queue.put_nowait(message)
        if self.read_paused:
            self.read_paused = False
            self.transport.resume_reading()

    def write_message(self, data: bytes) -> None:
        """Of `Direct`."""
        if not self.close_sent and not self.disconnected and not self.transport.is_closing():
            self.conn.send_binary(data)
            self.transport.write(b"".join(self.conn.data_to_send()))

    def handle_connect(self, event: Request) -> None:
        """Of uvicorn: the handler finds us among the extensions of its scope."""
        super().handle_connect(event)
        if self.response.status_code == 101:
            self.scope["extensions"][DIRECT] = self  # type: ignore[assignment]  # servers may add their own

    def handle_bytes(self, event: Frame) -> None:
        """Of uvicorn."""
        if self._on_message is not None and event.fin and not self.close_sent:
            self._on_message(bytes(event.data))
        else:
            super().handle_bytes(event)

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
