"""One connection to a forwarded port: judged request by request, and joined to a stream of the tunnel."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sbxguest.mux.pipe import Pipe
from sbxguest.mux.stream import Stream
from sbxtui.core.following import Follower
from sbxtui.core.webgate import Gate, Refusal
from sbxtui.guest.tunnel import Tunnel
from sbxtui.services.forward.answers import answer

if TYPE_CHECKING:
    from sbxtui.services.forward.port import Port

_SLOW_HEAD_S = 10.0


class Inlet(Pipe):
    """A connection of this machine to the sandbox's port.

    The stream is opened at once, as some servers speak first; what the client says waits until its first line, or the
    head of each of its requests, shows that it may pass.

    Args:
        tunnel: To the sandbox.
        port: What it belongs to.
        gate: Judges it.
    """

    def __init__(self, tunnel: Tunnel, port: Port, gate: Gate) -> None:
        super().__init__(tunnel.mux)
        self._tunnel = tunnel
        self._port = port
        self._follower = Follower(gate)
        self._deadline: asyncio.TimerHandle | None = None
        self._heard_bytes = 0

    @property
    def sent_bytes(self) -> int:
        """To the sandbox."""
        return self.stream.out.end if self.stream is not None else 0

    @property
    def received_bytes(self) -> int:
        """From the sandbox."""
        return self.stream.incoming.delivered_bytes if self.stream is not None else 0

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
        follower = self._follower
        if passing := follower.feed(data):
            self._pass(self.stream, passing)
        if follower.refusal is not None:
            self._refuse(follower.refusal)
        elif not follower.is_holding:
            self._stop_waiting()
        elif self._deadline is None:
            loop = asyncio.get_running_loop()
            self._deadline = loop.call_later(_SLOW_HEAD_S, self._refuse, Refusal(408, "the head takes too long"))

    def eof_received(self) -> bool:
        """Of asyncio."""
        self._stop_waiting()
        if self.stream is not None and (passing := self._follower.finish()):
            self._pass(self.stream, passing)
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

    def _pass(self, stream: Stream, data: bytes) -> None:
        self._heard_bytes = stream.incoming.received
        self._tunnel.wake()
        self.send(stream, data)

    def _refuse(self, refusal: Refusal) -> None:
        self._stop_waiting()
        self._port.note_refusal(refusal)
        stream, self.stream = self.stream, None
        # Between the parts of another request's answer there is no place for ours.
        is_owed = stream is not None and self._follower.requests and stream.incoming.received == self._heard_bytes
        if stream is not None:
            self.mux.reset(stream)
            self._port.count(stream.out.end, stream.incoming.delivered_bytes)
        if self.transport is not None:
            if refusal.status and not is_owed:
                self.transport.write(answer(refusal.status, refusal.why))
            self.transport.close()

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
