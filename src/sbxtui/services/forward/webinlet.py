"""One connection to a port that is forwarded through an endpoint: its requests, each judged, each an exchange."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from sbxguest.mux.pipe import write_end
from sbxtui.core.proxyheads import answer_back, request_out
from sbxtui.core.remembered import Remembered
from sbxtui.core.webgate import Doorkeeper, Refusal
from sbxtui.services.forward.answers import answer
from sbxtui.services.forward.exchange import Exchange

if TYPE_CHECKING:
    from sbxtui.services.forward.port import Port
    from sbxtui.services.forward.webway import WebWay

_SLOW_HEAD_S = 10.0
_HELD_BYTES = 128 * 1024
_UNSENT_BYTES = 256 * 1024
# Who still sends when we have nothing more to say gets a while to read that.
_LINGER_S = 5.0
_NO_HTTP = Refusal(400, "only HTTP passes here; `--mode tunnel` passes everything, with an image of sbx")
_NO_PATH = Refusal(400, "the request target must be a path")


class WebInlet(asyncio.Protocol):
    """A client's connection.

    Args:
        way: To the sandbox.
        port: What it belongs to.

    Attributes:
        is_slow: The client takes no more for now.
        request_out: Of `proxyheads`.
        answer_back: Of `proxyheads`.
    """

    def __init__(self, way: WebWay, port: Port) -> None:
        self.transport: asyncio.Transport | None = None
        self.sent_bytes = 0
        self.received_bytes = 0
        self.request_out = Remembered(request_out)
        self.answer_back = Remembered(answer_back)
        self._way = way
        self._port = port
        self._door = Doorkeeper(port.spec.gate)
        self._held = b""
        self._out: list[bytes] = []
        self._exchange: Exchange | None = None
        self._has_asked = False
        self.is_slow = False
        self._is_paused = False
        self._is_over = False
        self._deadline: asyncio.TimerHandle | None = None

    # The client's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Of asyncio."""
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(high=_UNSENT_BYTES)
        if not self._port.admit(self):
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        """Of asyncio."""
        if self._is_over:
            return
        self.sent_bytes += len(data)
        self._held = self._held + data if self._held else data
        self.proceed()

    def connection_lost(self, exc: Exception | None) -> None:
        """Of asyncio: what is under way for it is given up at once."""
        self.transport = None
        self._stop_waiting()
        if self._exchange is not None:
            self._exchange.cancel()
            self._exchange = None
        self._port.release(self)

    def pause_writing(self) -> None:
        """Of asyncio."""
        self.is_slow = True
        if self._exchange is not None:
            self._exchange.pause()

    def resume_writing(self) -> None:
        """Of asyncio."""
        self.is_slow = False
        if self._exchange is not None:
            self._exchange.resume()

    # The exchange's side.

    def proceed(self) -> None:
        """Do what can be done with what the client has sent."""
        while self._held and not self._is_over:
            if self._exchange is None:
                if not self._begin():
                    break
            else:
                # Sending may end the exchange, and what is held then belongs to the next one.
                held, self._held = self._held, b""
                taken = self._exchange.send(held)
                self._held = held[taken:] + self._held
                if not taken:
                    break
        self._hold_back(is_full=len(self._held) > _HELD_BYTES)

    def say(self, data: bytes) -> None:
        """Bytes of ours for the client, at once."""
        if self.transport is not None:
            self.transport.write(data)

    def queue(self, data: bytes) -> None:
        """Bytes for the client; `flush` sends them."""
        self._out.append(data)

    def flush(self) -> None:
        """Send what was queued."""
        if self._out:
            data = self._out[0] if len(self._out) == 1 else b"".join(self._out)
            self._out.clear()
            self.received_bytes += len(data)
            self._way.moved(len(data))
            self.say(data)

    def over(self, *, is_kept: bool) -> None:
        """The exchange has ended."""
        self._exchange = None
        self.flush()
        if is_kept:
            self.proceed()
        else:
            self._leave()

    def fail(self, status: int, why: str) -> None:
        """The exchange came to nothing."""
        self._exchange = None
        self._out.clear()
        self.say(answer(status, why))
        self._leave()

    def abort(self) -> None:
        """The answer broke off: so does the connection, that nobody takes it for whole."""
        self._exchange = None
        self.flush()
        self._is_over = True
        if self.transport is not None:
            # What came is delivered; a body with a framing is seen to be cut, one without cannot be.
            self.transport.close()

    def _begin(self) -> bool:
        """Start an exchange, if a whole request's head is here."""
        verdict = self._door.judge(self._held, is_first=not self._has_asked)
        if verdict is None:
            self._wait()
            return False
        self._stop_waiting()
        if isinstance(verdict, Refusal):
            self._refuse(verdict)
        elif verdict.is_blank:
            self._held = self._held[verdict.head_bytes :]
            return True
        elif verdict.request is None:
            self._refuse(_NO_HTTP)
        elif not _is_path(verdict.request.target):
            self._refuse(_NO_PATH)
        else:
            self._has_asked = True
            self._held = self._held[verdict.head_bytes :]
            self._exchange = Exchange(self, self._way, self._port, verdict.request)
            self._exchange.start()
            return True
        return False

    def _refuse(self, refusal: Refusal) -> None:
        self._port.note_refusal(refusal)
        if refusal.status:
            self.say(answer(refusal.status, refusal.why))
        self._leave()

    def _leave(self) -> None:
        """Say no more, and close once the client has read what was said."""
        self._is_over = True
        self._stop_waiting()
        self._held = b""
        self._hold_back(is_full=False)
        if self.transport is not None and not self.transport.is_closing():
            write_end(self.transport)
            self._deadline = asyncio.get_running_loop().call_later(_LINGER_S, self.transport.close)

    def _hold_back(self, *, is_full: bool) -> None:
        if self.transport is None or is_full is self._is_paused:
            return
        self._is_paused = is_full
        if is_full:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    def _wait(self) -> None:
        if self._deadline is None:
            loop = asyncio.get_running_loop()
            self._deadline = loop.call_later(_SLOW_HEAD_S, self._refuse, Refusal(408, "the head takes too long"))

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def _is_path(target: bytes) -> bool:
    return target.startswith(b"/") or target == b"*"
