"""One connection to a forwarded port: judged request by request, and joined to a stream of the tunnel."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sbxguest.mux.pipe import Pipe
from sbxguest.mux.stream import Stream
from sbxtui.core.following import Follower
from sbxtui.core.webgate import Gate, Refusal
from sbxtui.guest.tunnel import Tunnel, TunnelState
from sbxtui.services.forward.answers import answer

if TYPE_CHECKING:
    from sbxtui.services.forward.port import Port

_SLOW_HEAD_S = 10.0
# Somebody may be about to resume the sandbox; a client that is no browser cannot be told why it waits.
ASLEEP_S = 10.0
_ASLEEP = "asleep"


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
        self._asleep: asyncio.TimerHandle | None = None

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
        if self._asleep is not None:
            self._asleep.cancel()
        super().connection_lost(exc)
        self._port.release(self)

    def on_reset(self, code: str, message: str) -> None:
        """Of `Sink`."""
        self._port.note_failure(code, message)
        super().on_reset(code, message)

    def on_asleep(self, why: str) -> None:
        """Of `Caller`. A request is answered in the sandbox's place; what went on before goes on when it is back."""
        stream = self.stream
        if stream is None or (self._follower.is_raw and stream.is_open):
            return
        if self._follower.requests_http:
            self._give_up(stream, why)
        elif self._asleep is None:
            self._asleep = asyncio.get_running_loop().call_later(ASLEEP_S, self._tire, stream, why)

    def _tire(self, stream: Stream, why: str) -> None:
        if self.stream is stream and not stream.is_open and self._tunnel.state is not TunnelState.UP:
            self._give_up(stream, why)

    def _give_up(self, stream: Stream, why: str) -> None:
        """End a connection that waits for a sandbox which nothing wakes."""
        # In place of a later request's answer a client could take ours for the rest of an earlier one's: it asks again.
        is_told = self._follower.requests_http and not stream.incoming.received
        self._port.note_trouble(_ASLEEP, f"a connection was {'answered with 503' if is_told else 'closed'}: {why}")
        self._leave(stream)
        if self.transport is not None:
            if is_told:
                self.transport.write(answer(503, why))
            self.transport.close()

    def _leave(self, stream: Stream) -> None:
        self.stream = None
        self.mux.reset(stream)
        self._port.count(stream.out.end, stream.incoming.delivered_bytes)

    def _pass(self, stream: Stream, data: bytes) -> None:
        self._heard_bytes = stream.incoming.received
        self._tunnel.wake(self)
        self.send(stream, data)

    def _refuse(self, refusal: Refusal) -> None:
        self._stop_waiting()
        self._port.note_refusal(refusal)
        stream = self.stream
        # Between the parts of another request's answer there is no place for ours.
        is_owed = stream is not None and self._follower.requests and stream.incoming.received == self._heard_bytes
        if stream is not None:
            self._leave(stream)
        if self.transport is not None:
            if refusal.status and not is_owed:
                self.transport.write(answer(refusal.status, refusal.why))
            self.transport.close()

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
