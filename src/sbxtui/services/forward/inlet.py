"""One connection to a forwarded port: judged by its first bytes, then joined to a stream of the tunnel."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import TYPE_CHECKING

from sbxguest.mux.pipe import Pipe
from sbxguest.mux.stream import Stream
from sbxtui.core.webgate import Gate, Refusal
from sbxtui.guest.tunnel import Tunnel

if TYPE_CHECKING:
    from sbxtui.services.forward.port import Port

_SLOW_HEAD_S = 10.0


class Inlet(Pipe):
    """A connection of this machine to the sandbox's port.

    The stream is opened at once, as some servers speak first; what the client says waits until its first line, or the
    head of its first request, shows that it may pass.

    Args:
        tunnel: To the sandbox.
        port: What it belongs to.
        gate: Judges it.
    """

    def __init__(self, tunnel: Tunnel, port: Port, gate: Gate) -> None:
        super().__init__(tunnel.mux)
        self._tunnel = tunnel
        self._port = port
        self._judge: Callable[[bytes], Refusal | bool] | None = gate.judge
        self._held = b""
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Of asyncio."""
        super().connection_made(transport)
        if not self._port.admit(self):
            transport.close()
            return
        self.stream = self._tunnel.open(self._port.remote_port, self)

    def data_received(self, data: bytes) -> None:
        """Of asyncio."""
        if self.stream is None:
            return
        if self._judge is None:
            self._pass(self.stream, data)
            return
        self._held += data
        verdict = self._judge(self._held)
        if isinstance(verdict, Refusal):
            self._refuse(verdict)
        elif verdict:
            self._let_pass(self.stream)
        elif self._deadline is None:
            loop = asyncio.get_running_loop()
            self._deadline = loop.call_later(_SLOW_HEAD_S, self._refuse, Refusal(408, "the head takes too long"))

    def eof_received(self) -> bool:
        """Of asyncio: what ends before it became a request is none."""
        if self.stream is not None and self._judge is not None:
            self._let_pass(self.stream)
        return super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """Of asyncio."""
        self._stop_waiting()
        super().connection_lost(exc)
        self._port.release(self)

    def on_reset(self, code: str, message: str) -> None:
        """Of `Sink`."""
        self._port.note_failure(code, message)
        super().on_reset(code, message)

    def _let_pass(self, stream: Stream) -> None:
        self._stop_waiting()
        self._judge = None
        held, self._held = self._held, b""
        if held:
            self._pass(stream, held)

    def _pass(self, stream: Stream, data: bytes) -> None:
        self._tunnel.wake()
        self.send(stream, data)

    def _refuse(self, refusal: Refusal) -> None:
        self._stop_waiting()
        self._port.note_refusal(refusal)
        if self.stream is not None:
            self.mux.reset(self.stream)
            self._port.count(self.stream)
            self.stream = None
        if self.transport is not None:
            if refusal.status:
                self.transport.write(_answer(refusal))
            self.transport.close()

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def _answer(refusal: Refusal) -> bytes:
    body = f"sbx: {refusal.why}\n".encode()
    head = (
        f"HTTP/1.1 {refusal.status} {HTTPStatus(refusal.status).phrase}\r\ncontent-type: text/plain; charset=utf-8\r\n"
        f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + body
