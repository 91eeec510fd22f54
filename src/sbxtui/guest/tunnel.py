"""The host's end of a tunnel: one WebSocket to a guest for all forwarded connections, made again when it is lost.

It is dialled when there is something to carry and closed when there is not, so that it keeps no sandbox awake. When it
is lost, connections wait: a sandbox that runs is dialled again at once, a suspended one when this machine has a byte
for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import secrets
import ssl
from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Protocol
from weakref import WeakSet

from websockets.exceptions import ConnectionClosed

from sbxguest.mux.carrier import Carrier
from sbxguest.mux.frames import Part
from sbxguest.mux.mux import Mux, Sink
from sbxguest.mux.stream import Stream
from sbxguest.wire import BadFrame
from sbxtui.core.errors import Conflict, NotFound, SbxError, Unsupported, UntrustedEndpoint
from sbxtui.guest.directsocket import DirectSocket
from sbxtui.guest.transport import TokenSource
from sbxtui.guest.wsdial import dial

_IDLE_S = 60.0
_SILENCE_S = 5.0
# Somebody else may have resumed it.
_LOOK_EVERY_S = 5.0
_DIAL_TIMEOUT_S = 30.0
_BACKOFF_FIRST_S = 0.2
_BACKOFF_MAX_S = 5.0
RESUME_WINDOW_S = 1800.0


class TunnelState(StrEnum):
    """How a tunnel is."""

    # No connection, and none is needed.
    IDLE = "idle"
    CONNECTING = "connecting"
    UP = "up"
    # The sandbox is suspended: connections are kept, and the next byte of this machine wakes it.
    PARKED = "suspended"
    DOWN = "link down"
    GONE = "gone"


class Caller(Sink, Protocol):
    """Who has a connection through a tunnel."""

    def on_asleep(self, why: str) -> None:
        """The sandbox is suspended, and what was sent while it is does not wake it. Raises nothing."""
        ...


class Tunnel:
    """A tunnel to one guest. `run` keeps it; `open` and the methods of `mux` use it.

    Args:
        endpoint: As `GuestClient` takes it.
        tokens: Where endpoint tokens come from; None for a guest without a proxy before it.
        port: The guest's port.
        verify: How TLS to the endpoint is checked.
        is_asleep: Asks, without waking it, whether the sandbox is suspended; raises NotFound when it has ended.
        explain: Finds out why the guest did not answer; a Conflict says that the sandbox does not wake by itself.
        on_state: Called with each new state and, in words, the reason for it.
    """

    def __init__(
        self,
        endpoint: str,
        tokens: TokenSource | None,
        *,
        port: int,
        verify: ssl.SSLContext | bool,
        is_asleep: Callable[[], Awaitable[bool]],
        explain: Callable[[SbxError], Awaitable[SbxError]],
        on_state: Callable[[TunnelState, str], None],
    ) -> None:
        self.mux = Mux()
        self.state = TunnelState.IDLE
        self._endpoint = endpoint
        self._tokens = tokens
        self._port = port
        self._verify = verify
        self._is_asleep = is_asleep
        self._explain = explain
        self._on_state = on_state
        self._name = secrets.token_hex(16)
        self._epoch = 0
        self._reason = ""
        self._wanted = asyncio.Event()
        self._has_bytes = asyncio.Event()
        self._pause_s = _BACKOFF_FIRST_S
        self._lost_at_s: float | None = None
        self._heard = False
        self._calling: WeakSet[Caller] = WeakSet()

    def open(self, port: int, sink: Caller) -> Stream:
        """A connection to a port of the sandbox; see `Mux.open`."""
        stream = self.mux.open(port, sink)
        self._wanted.set()
        return stream

    def wake(self, caller: Caller) -> None:
        """This machine has a byte for the sandbox: worth waking it for."""
        self._has_bytes.set()
        if self.state is not TunnelState.UP:
            self._calling.add(caller)

    async def run(self) -> None:
        """Keep the tunnel for as long as this is not cancelled.

        Raises:
            NotFound: The sandbox has ended. Unsupported: Its guest has no tunnel. UntrustedEndpoint: No trust in its
            endpoint. All connections are reset then.
        """
        try:
            while True:
                if not self.mux.streams:
                    self._tell(TunnelState.IDLE)
                    self._wanted.clear()
                    await self._wanted.wait()
                await self._one_life()
        except SbxError as exc:
            self._tell(TunnelState.GONE, exc.message)
            raise
        finally:
            self.mux.reset_all("", self._reason)

    async def _one_life(self) -> None:
        """From no connection to the end of one, or a pause after a failure."""
        try:
            if await self._must_wait():
                return
            self._tell(TunnelState.CONNECTING, self._reason)
            connection = await self._dial()
        except SbxError as exc:
            await self._refused(exc)
            return
        try:
            await self._carry(connection)
        finally:
            self.mux.unlink()
            await _close(connection)
        if not self.mux.has_untaken:
            self._has_bytes.clear()
        if self.mux.streams:
            await self._fail(self.mux.goodbye or "the connection was lost")

    async def _must_wait(self) -> bool:
        """Wait a while for a byte of this machine, if the sandbox is suspended; False: it is time to connect."""
        if self._has_bytes.is_set() or not await self._is_asleep():
            return False
        self._tell(TunnelState.PARKED, self._reason if self.state is TunnelState.PARKED else "")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_EVERY_S):
                await self._has_bytes.wait()
        return True

    async def _refused(self, failure: SbxError) -> None:
        """No connection came about.

        Raises:
            NotFound, Unsupported, UntrustedEndpoint: None ever will.
        """
        error = await self._explain(failure)
        if isinstance(error, NotFound | Unsupported | UntrustedEndpoint):
            raise error
        if isinstance(error, Conflict) and error is not failure:
            self._has_bytes.clear()
            words = f"{error.message}; {error.hint}"
            self._tell(TunnelState.PARKED, words)
            callers, self._calling = self._calling, WeakSet()
            for caller in callers:
                caller.on_asleep(words)
        else:
            await self._fail(error.message)

    async def _dial(self) -> DirectSocket:
        self._epoch += 1
        return await dial(
            self._endpoint,
            self._tokens,
            "/v2/tunnel",
            {"tunnel": self._name, "epoch": self._epoch},
            port=self._port,
            verify=self._verify,
            doing="connecting to the sandbox",
            timeout_s=_DIAL_TIMEOUT_S,
        )

    async def _carry(self, connection: DirectSocket) -> None:
        """Pass frames both ways until the connection is lost, silent, garbled or not needed any more."""
        carrier = Carrier(self.mux, connection.write_message)
        garbled = asyncio.Event()

        def take(data: Part) -> None:
            try:
                self._hear(data)
            except BadFrame:
                garbled.set()

        self.mux.link()
        connection.listen(take, carrier.hold)
        tasks = [asyncio.create_task(one) for one in (connection.wait_closed(), garbled.wait(), self._watch())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            carrier.close()
            for task in tasks:
                task.cancel()
            for outcome in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(outcome, Exception):
                    raise outcome

    def _hear(self, data: Part) -> None:
        self._heard = True
        self.mux.receive(data)
        if self.state is not TunnelState.UP and self.mux.is_linked:
            self._lost_at_s = None
            self._pause_s = _BACKOFF_FIRST_S
            self._calling.clear()
            self._tell(TunnelState.UP)

    async def _watch(self) -> None:
        """Return when the other end owes us a sign for too long, or nothing was to carry for a while."""
        silent, idle_s = 0, 0.0
        while True:
            self._heard = False
            await asyncio.sleep(_SILENCE_S)
            idle_s = 0.0 if self.mux.streams else idle_s + _SILENCE_S
            if idle_s >= _IDLE_S:
                return
            owes = self.mux.awaits_sign or not self.mux.is_linked
            silent = silent + 1 if owes and not self._heard else 0
            if silent > 1:
                return
            if silent:
                self.mux.ping()

    async def _fail(self, reason: str) -> None:
        """Say that there is no way now, and pause before the next try; after too long, give the connections up."""
        now_s = asyncio.get_running_loop().time()
        self._lost_at_s = self._lost_at_s or now_s
        self._tell(TunnelState.DOWN, reason)
        if now_s - self._lost_at_s > RESUME_WINDOW_S:
            self.mux.reset_all("", reason)
            self._lost_at_s = None
        await asyncio.sleep(self._pause_s * random.uniform(0.7, 1.0))
        self._pause_s = min(self._pause_s * 2, _BACKOFF_MAX_S)

    def _tell(self, state: TunnelState, reason: str = "") -> None:
        if (state, reason) != (self.state, self._reason):
            self.state, self._reason = state, reason
            self._on_state(state, reason)


async def _close(connection: DirectSocket) -> None:
    with contextlib.suppress(OSError, ConnectionClosed):
        await connection.close()
