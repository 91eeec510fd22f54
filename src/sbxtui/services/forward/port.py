"""A forwarded port while it is open: its connections, their number and traffic, and what became of the last ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from sbxguest.mux.frames import NOT_LISTENING
from sbxtui.core.hosts import authority
from sbxtui.core.text import harmless_line
from sbxtui.core.webgate import Refusal
from sbxtui.guest.tunnel import TunnelState
from sbxtui.services.forward.listeners import Bound
from sbxtui.services.forward.model import ForwardStatus
from sbxtui.services.forward.ways import Connection, Way

MAX_CONNECTIONS = 256


class Port:
    """One open port. `close` ends it with its connections.

    Args:
        bound: The sockets that listen.
        way: To the sandbox.
        on_trouble: Called, once for each kind of it, with what went wrong with a connection.
    """

    def __init__(self, bound: Bound, way: Way, on_trouble: Callable[[str], None]) -> None:
        self.remote_port = bound.spec.remote_port
        self.spec = bound.spec
        self._bound = bound
        self._way = way
        self._on_trouble = on_trouble
        self._told: set[str] = set()
        self._inlets: set[Connection] = set()
        self._servers: Sequence[asyncio.Server] = ()
        self._status = ForwardStatus(addresses=[authority(*sock.getsockname()[:2]) for sock in bound.sockets])

    async def open(self) -> None:
        """Take connections from now on."""
        loop = asyncio.get_running_loop()
        self._servers = [
            await loop.create_server(lambda: self._way.inlet(self), sock=sock) for sock in self._bound.sockets
        ]

    def close(self) -> None:
        """Listen no more, and end every connection."""
        for server in self._servers:
            server.close()
        self._bound.close()
        for inlet in list(self._inlets):
            if inlet.transport is not None:
                inlet.transport.abort()

    def status(self, state: TunnelState, reason: str) -> ForwardStatus:
        """How it is now."""
        return ForwardStatus(
            state.value,
            harmless_line(reason),
            self._status.last_error,
            len(self._inlets),
            self._status.accepted,
            self._status.sent_bytes + sum(inlet.sent_bytes for inlet in self._inlets),
            self._status.received_bytes + sum(inlet.received_bytes for inlet in self._inlets),
            self._status.addresses,
        )

    def admit(self, inlet: Connection) -> bool:
        """Whether one more connection may be; it counts from now on."""
        if len(self._inlets) >= MAX_CONNECTIONS or not self._way.has_room:
            self._trouble("many", f"more than {MAX_CONNECTIONS} connections at once: one was closed")
            return False
        self._inlets.add(inlet)
        self._status.accepted += 1
        return True

    def release(self, inlet: Connection) -> None:
        """A connection has ended."""
        if inlet in self._inlets:
            self._inlets.discard(inlet)
            self.count(inlet.sent_bytes, inlet.received_bytes)

    def count(self, sent_bytes: int, received_bytes: int) -> None:
        """Add what was carried by what will carry no more."""
        self._status.sent_bytes += sent_bytes
        self._status.received_bytes += received_bytes

    def note_failure(self, code: str, message: str) -> None:
        """A connection was refused inside of the sandbox, or broke."""
        if code == NOT_LISTENING:
            self._trouble(code, f"nothing listens on port {self.remote_port} in the sandbox")
        elif code:
            self._trouble(code, f"port {self.remote_port} of the sandbox: {harmless_line(message)}")

    def note_trouble(self, kind: str, words: str) -> None:
        """Something went wrong with a connection; each kind is told once."""
        self._trouble(kind, words)

    def note_refusal(self, refusal: Refusal) -> None:
        """A connection was not let through."""
        self._trouble(refusal.why, f"refused: {refusal.why}")

    def _trouble(self, kind: str, words: str) -> None:
        self._status.last_error = words
        if kind not in self._told:
            self._told.add(kind)
            self._on_trouble(words)
