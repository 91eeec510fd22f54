"""A WebSocket to a guest whose messages can be had without a task and a queue in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from websockets.asyncio.client import ClientConnection
from websockets.protocol import State

from sbxguest.mux import near
from sbxguest.mux.frames import Part
from sbxguest.mux.gather import Gatherer
from sbxguest.mux.intake import Intake
from sbxguest.mux.messages import PLAIN_KEY, MessageReader, framed, new_key

_HEAD_END = b"\r\n\r\n"


class DirectSocket(ClientConnection, asyncio.BufferedProtocol):
    """The library's connection, but for binary messages: what those carry goes to a callback and not to `recv`."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._on_paused: Callable[[bool], None] | None = None
        self._early: list[Part] = []
        self._reader = MessageReader(is_masked=False, on_other=super().data_received)
        self._reader.on_bytes = lambda data: self._early.append(bytes(data))
        self._intake = Intake()
        self._gatherer: Gatherer | None = None
        self._is_seen = True
        self._is_open = False
        self._seen = b""

    def listen(self, on_bytes: Callable[[Part], None], on_paused: Callable[[bool], None]) -> None:
        """Hand over what messages carry as it comes, what came before first.

        Args:
            on_bytes: Gets some of it, which lies where others will write soon; raises nothing.
            on_paused: Told whether what is written waits.
        """
        self._reader.on_bytes, self._on_paused = on_bytes, on_paused
        early, self._early = self._early, []
        for data in early:
            on_bytes(data)

    def write_message(self, parts: Sequence[Part]) -> None:
        """Send a binary message of these parts at once, or keep it; a connection that closes drops it."""
        if self.protocol.state is State.OPEN:
            if self._gatherer is None:
                self._gatherer = Gatherer(self.transport)
                self._is_seen = _is_seen(self.transport)
            self._gatherer.write(framed(parts, new_key() if self._is_seen else PLAIN_KEY))

    def get_buffer(self, sizehint: int) -> memoryview:
        """Of asyncio."""
        return self._intake.room()

    def buffer_updated(self, nbytes: int) -> None:
        """Of asyncio."""
        if self._is_open:
            self._reader.feed(self._intake.filled(nbytes))
        else:
            self._shake_hands(bytes(self._intake.filled(nbytes)))

    def _shake_hands(self, data: bytes) -> None:
        """The answer to the handshake is the library's, what follows is cut into frames first."""
        seen = self._seen + data
        end = seen.find(_HEAD_END)
        size = end + len(_HEAD_END) - len(self._seen) if end >= 0 else len(data)
        self._seen = seen[-len(_HEAD_END) + 1 :]
        super().data_received(data[:size])
        self._is_open = self.protocol.state is State.OPEN
        if rest := data[size:]:
            self._reader.feed(rest) if self._is_open else super().data_received(rest)

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


def _is_seen(transport: asyncio.BaseTransport) -> bool:
    """Whether what is sent may be read on its way.

    A mask keeps bytes that a page chose from looking like something else to a proxy that does not know WebSockets.
    Inside of TLS, and on this machine, there is none, and going through every byte for it at both ends is a tenth of
    what a tunnel costs them.
    """
    sock = transport.get_extra_info("socket")
    return not transport.get_extra_info("sslcontext") and (sock is None or not near.is_near(sock))
