"""A WebSocket to a guest whose messages can be had without a task and a queue in between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from websockets.asyncio.client import ClientConnection
from websockets.frames import Frame, Opcode
from websockets.protocol import Event, State


class DirectSocket(ClientConnection):
    """The library's connection; from `listen` on, binary messages go to a callback and not to `recv`."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._on_message: Callable[[bytes], None] | None = None
        self._on_paused: Callable[[bool], None] | None = None
        self._early: list[bytes] = []

    def listen(self, on_message: Callable[[bytes], None], on_paused: Callable[[bool], None]) -> None:
        """Hand over each message as it comes, what came before first.

        Args:
            on_message: Gets a whole message; raises nothing.
            on_paused: Told whether what is written waits.
        """
        self._on_message, self._on_paused = on_message, on_paused
        early, self._early = self._early, []
        for message in early:
            on_message(message)

    def write_message(self, data: bytes) -> None:
        """Send a binary message at once, or keep it; a connection that closes drops it."""
        if self.protocol.state is State.OPEN:
            self.protocol.send_binary(data)
            self.send_data()

    def process_event(self, event: Event) -> None:
        """Of the library."""
        if isinstance(event, Frame) and event.opcode is Opcode.BINARY and event.fin:
            if self._on_message is None:
                self._early.append(bytes(event.data))
            else:
                self._on_message(bytes(event.data))
        else:
            super().process_event(event)

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
