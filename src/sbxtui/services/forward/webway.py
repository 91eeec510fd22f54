"""The way through a sandbox's endpoint: HTTP and WebSocket to any server in it, whatever its image holds."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from sbxtui.core.errors import Conflict, NotFound, SbxError, UntrustedEndpoint
from sbxtui.core.proxyheads import Passport
from sbxtui.guest.faults import translated
from sbxtui.guest.pool import address_of
from sbxtui.guest.transport import TokenSource
from sbxtui.guest.tunnel import TunnelState
from sbxtui.guest.upstream import Upstream
from sbxtui.guest.upstreams import Upstreams
from sbxtui.services.forward.webinlet import WebInlet

if TYPE_CHECKING:
    from sbxtui.services.forward.port import Port

# What the token service is asked again after; it renews in good time.
_FRESH_S = 60.0


class WebWay:
    """A reverse proxy to one sandbox. Nothing is connected before a request comes.

    Args:
        endpoint: As `address_of` takes it.
        tokens_of: Where tokens for a port of the sandbox come from.
        verify: How TLS to the endpoint is checked.
        connections: How many it may have at once.
        explain: Finds out why the endpoint did not answer.
        on_state: Called with each new state and, in words, the reason for it.
        revive: Starts again whoever should listen at the endpoint.
    """

    def __init__(
        self,
        endpoint: str,
        tokens_of: Callable[[int], TokenSource],
        *,
        verify: ssl.SSLContext | bool,
        connections: int,
        explain: Callable[[SbxError], Awaitable[SbxError]],
        on_state: Callable[[TunnelState, str], None],
        revive: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        address = address_of(endpoint, verify)
        self.state = TunnelState.IDLE
        self.moved_bytes = 0
        self.upstreams = Upstreams(address, connections, revive)
        self._authority = address.authority.encode()
        self._tokens_of = tokens_of
        self._explain = explain
        self._on_state = on_state
        self._reason = ""
        self._sources: dict[int, TokenSource] = {}
        self._passports: dict[int, tuple[Passport, float]] = {}
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def has_room(self) -> bool:
        """Of `Way`: connections of this machine wait, they are not refused."""
        return True

    def inlet(self, port: Port) -> asyncio.Protocol:
        """Of `Way`."""
        return WebInlet(self, port)

    async def run(self) -> None:
        """Of `Way`."""
        try:
            await asyncio.shield(self._over)
        finally:
            self.upstreams.close()

    def passport(self, port: int) -> Passport | None:
        """What opens a port, if it is at hand."""
        passport, until_s = self._passports.get(port, (None, 0.0))
        return passport if asyncio.get_running_loop().time() < until_s else None

    async def new_passport(self, port: int, *, is_refused: bool = False) -> Passport:
        """What opens a port.

        Args:
            port: Of the sandbox.
            is_refused: The last one was refused.

        Raises:
            SbxError: None is to be had.
        """
        source = self._sources.setdefault(port, self._tokens_of(port))
        token = await source.token(refresh=is_refused)
        passport = Passport(self._authority, port, token.encode())
        self._passports[port] = (passport, asyncio.get_running_loop().time() + _FRESH_S)
        return passport

    async def acquire(self) -> Upstream:
        """A connection to the endpoint.

        Raises:
            GuestUnreachable: There is none. UntrustedEndpoint: No trust in it.
        """
        with translated("connecting to the sandbox"):
            return await self.upstreams.acquire()

    def moved(self, size: int) -> None:
        """Bytes have come from the sandbox."""
        self.moved_bytes += size
        if self.state is not TunnelState.UP:
            self.tell(TunnelState.UP)

    async def explained(self, failure: SbxError, *, is_answered: bool) -> SbxError:
        """Why there was no answer of a server; ends this way where there never will be one.

        Args:
            failure: What came instead.
            is_answered: Whether that came from the endpoint.
        """
        error = await self._explain(failure)
        if isinstance(error, NotFound | UntrustedEndpoint):
            self.tell(TunnelState.GONE, error.message)
            if not self._over.done():
                self._over.set_exception(error)
        elif isinstance(error, Conflict):
            self.tell(TunnelState.PARKED, f"{error.message}; {error.hint}")
        elif is_answered:
            self.tell(TunnelState.UP)
        else:
            self.tell(TunnelState.DOWN, error.message)
        return error

    def tell(self, state: TunnelState, reason: str = "") -> None:
        """Be in a state from now on."""
        if (state, reason) != (self.state, self._reason):
            self.state, self._reason = state, reason
            self._on_state(state, reason)
