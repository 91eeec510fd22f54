"""What a client says over one connection of a forward, request by request: each is judged before a byte of it passes.

A browser sends many requests over a connection, of many pages. Pure: bytes in, bytes out.
"""

from __future__ import annotations

from sbxtui.core.bodies import Framing, framing_of
from sbxtui.core.heads import BadMessage
from sbxtui.core.webgate import Doorkeeper, Gate, Refusal


class Follower:
    """The requests of one connection; what is no HTTP passes as it is.

    Attributes:
        refusal: Why nothing passes any more.
        requests: How many have passed.
        requests_http: Whether they are of HTTP.
        is_raw: Whether what passes now is no request: it never was, or there was an upgrade.
    """

    def __init__(self, gate: Gate) -> None:
        self.refusal: Refusal | None = None
        self.requests = 0
        self.requests_http = False
        self.is_raw = False
        self._gate = gate
        self._door = Doorkeeper(gate)
        self._held = b""
        self._body: Framing | None = None

    @property
    def is_holding(self) -> bool:
        """Whether the beginning of a request waits for its rest."""
        return bool(self._held)

    def feed(self, data: bytes) -> bytes:
        """What may pass now, of this and of what was held; after a refusal nothing does."""
        if self.refusal is not None:
            return b""
        if self._body is None:
            data, self._held = self._held + data, b""
        passed = b""
        while data and self.refusal is None:
            size = self._begin(data) if self._body is None else self._go_on(self._body, data)
            if not size and self._body is None:
                self._held = data
                break
            passed, data = passed + data[:size] if passed else data[:size], data[size:]
        return passed

    def finish(self) -> bytes:
        """The client has ended: what may pass of what was held. Half of a request is none."""
        held, self._held = self._held, b""
        return b"" if self.requests or self.refusal or self._gate.is_request(held) else held

    def _begin(self, data: bytes) -> int:
        """Judge what begins here; how many bytes of it pass by that alone."""
        verdict = self._door.judge(data, is_first=not self.requests)
        if verdict is None:
            return 0
        if isinstance(verdict, Refusal):
            self.refusal = verdict
            return 0
        if verdict.is_blank:
            return verdict.head_bytes
        self.requests += 1
        self.is_raw = verdict.body == "close"
        self.requests_http = verdict.request is not None
        self._body = framing_of(verdict.body)
        if self._body.is_done:
            self._body = None
        return verdict.head_bytes

    def _go_on(self, body: Framing, data: bytes) -> int:
        try:
            taken = body.feed(data)
        except BadMessage as exc:
            self.refusal = Refusal(exc.status, exc.why)
            return 0
        if body.is_done:
            self._body = None
        return taken
