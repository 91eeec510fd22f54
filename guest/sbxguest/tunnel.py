"""`WS /v2/tunnel?tunnel=&epoch=`: connections to ports of this sandbox's loopback, many over one WebSocket.

The host names the tunnel and counts its connections; a later one takes over from an earlier. A tunnel without one is
kept for a while of running time, with its sockets: what was under way goes on when the host is back. See
`mux/frames.py`.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
from collections.abc import Collection

from sbxguest.app import Request, WireError
from sbxguest.mux.carrier import Carrier
from sbxguest.mux.frames import FAILED, FORBIDDEN, MAX_STREAMS, NOT_LISTENING, TOO_MANY, Part
from sbxguest.mux.mux import Mux
from sbxguest.mux.pipe import Pipe
from sbxguest.mux.stream import Stream
from sbxguest.runclock import RunClock
from sbxguest.sockets import SocketRoute, WebSocket
from sbxguest.wire import BadFrame

_KEPT_S = 600.0
_TUNNELS_MAX = 64
_NAME = re.compile(r"[0-9a-zA-Z]{8,64}")
# Servers on either family; those of newer Node versions listen on ::1 only.
_LOOPBACKS = ("127.0.0.1", "::1")
# A dev server that restarts is back within a second.
_TRIES = 4
_PAUSE_S = 0.3
_DIAL_TIMEOUT_S = 10.0
_CLOSE_REPLACED = 4409
_CLOSE_GARBLED = 1007


class TunnelTable:
    """The tunnels of this guest.

    Args:
        own_ports: Of the guest itself; no tunnel leads there.
        clock: Of running time.
    """

    def __init__(self, own_ports: Collection[int], clock: RunClock) -> None:
        self.own_ports = frozenset(own_ports)
        self._clock = clock
        self._tunnels: dict[str, _Tunnel] = {}

    async def serve(self, name: str, epoch: int, socket: WebSocket) -> None:
        """Serve one connection of a tunnel to its end.

        Raises:
            WireError: 409 a later one is there already; 429 there are too many tunnels.
        """
        tunnel = self._tunnels.get(name)
        if tunnel is None:
            self._make_room()
            tunnel = self._tunnels[name] = _Tunnel(self.own_ports)
        await tunnel.take_over(epoch)
        await socket.accept()
        await tunnel.serve(epoch, socket)
        if tunnel.epoch != epoch:
            await socket.close(_CLOSE_REPLACED, "a later connection took over")
            return
        if not tunnel.mux.streams:
            self._tunnels.pop(name, None)
        else:
            tunnel.expiry = asyncio.create_task(self._expire(name, tunnel))

    def _make_room(self) -> None:
        """Give up the oldest tunnel whose host is away, if there are as many as may be.

        Raises:
            WireError: 429, all of them are in use.
        """
        if len(self._tunnels) < _TUNNELS_MAX:
            return
        waiting = next((name for name, tunnel in self._tunnels.items() if tunnel.expiry is not None), None)
        if waiting is None:
            raise WireError(429, "too_many_tunnels", f"there are {_TUNNELS_MAX} tunnels already")
        self._drop(waiting)

    def _drop(self, name: str) -> None:
        tunnel = self._tunnels.pop(name)
        if tunnel.expiry is not None and tunnel.expiry is not asyncio.current_task():
            tunnel.expiry.cancel()
        tunnel.mux.reset_all("", "nobody came back for it")

    async def _expire(self, name: str, tunnel: _Tunnel) -> None:
        await self._clock.sleep(_KEPT_S)
        if self._tunnels.get(name) is tunnel:
            self._drop(name)


class _Tunnel:
    """One tunnel: its streams, and the connection it has now."""

    def __init__(self, own_ports: frozenset[int]) -> None:
        self.mux = Mux(on_open=self._open)
        self.epoch = -1
        self.expiry: asyncio.Task[None] | None = None
        self._own_ports = own_ports
        self._serving: asyncio.Task[None] | None = None
        self._dials: set[asyncio.Task[None]] = set()

    async def take_over(self, epoch: int) -> None:
        """From now on that connection counts; an earlier one has ended when this returns.

        Raises:
            WireError: 409, a later one is or was there.
        """
        if epoch > self.epoch:
            self.epoch = epoch
            if self.expiry is not None:
                self.expiry.cancel()
                self.expiry = None
            while (serving := self._serving) is not None:
                self._serving = None
                serving.cancel()
                await asyncio.wait([serving])
        if epoch != self.epoch:
            raise WireError(409, "stale_epoch", "a later connection of this tunnel was here already")

    async def serve(self, epoch: int, socket: WebSocket) -> None:
        """Pass frames both ways until the connection ends, or another takes over."""
        if epoch != self.epoch:
            return
        self._serving = serving = asyncio.create_task(self._pass_frames(socket))
        # Cancelling it is how another connection takes over.
        await asyncio.wait([serving])
        if epoch == self.epoch:
            self.mux.unlink()

    async def _pass_frames(self, socket: WebSocket) -> None:
        loop, direct = asyncio.get_running_loop(), socket.direct
        garbled: asyncio.Future[str] = loop.create_future()
        carrier = Carrier(self.mux, direct.write_message)

        def take(data: Part) -> None:
            try:
                self.mux.receive(data)
            except BadFrame as exc:
                if not garbled.done():
                    garbled.set_result(str(exc))

        self.mux.link()
        direct.listen(take, carrier.hold)
        gone = asyncio.create_task(_until_gone(socket))
        ends: list[asyncio.Future[None] | asyncio.Future[str]] = [gone, garbled]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            direct.listen(None, None)
            carrier.close()
            gone.cancel()
            await asyncio.gather(gone, return_exceptions=True)
        if garbled.done():
            await socket.close(_CLOSE_GARBLED, garbled.result()[:100])

    def _open(self, stream: Stream) -> None:
        if stream.port in self._own_ports:
            self.mux.refuse(stream, FORBIDDEN, f"port {stream.port} is the guest's own")
        elif len(self.mux.streams) > MAX_STREAMS:
            self.mux.refuse(stream, TOO_MANY, f"there are {MAX_STREAMS} connections already")
        else:
            task = asyncio.create_task(self._dial(stream))
            self._dials.add(task)
            task.add_done_callback(self._dials.discard)

    async def _dial(self, stream: Stream) -> None:
        for left in reversed(range(_TRIES)):
            error = await self._connect(stream)
            if error is None:
                return
            if stream.id not in self.mux.streams:
                return
            if left and error.errno == errno.ECONNREFUSED:
                await asyncio.sleep(_PAUSE_S)
                continue
            code = NOT_LISTENING if error.errno == errno.ECONNREFUSED else FAILED
            words = os.strerror(error.errno) if error.errno else str(error) or "no connection in time"
            self.mux.refuse(stream, code, words)
            return

    async def _connect(self, stream: Stream) -> OSError | None:
        """Try each loopback address; returns the first one's failure when none takes the connection."""
        first: OSError | None = None
        loop = asyncio.get_running_loop()
        for address in _LOOPBACKS:
            try:
                async with asyncio.timeout(_DIAL_TIMEOUT_S):
                    await loop.create_connection(lambda: _GuestPipe(self.mux, stream), address, stream.port)
            except OSError as exc:
                first = first or exc
                continue
            return None
        return first


async def _until_gone(socket: WebSocket) -> None:
    while await socket.receive() is not None:
        pass


class _GuestPipe(Pipe):
    """A socket that was connected for a stream, which may be gone by then."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Of asyncio."""
        if self.stream is not None and self.stream.id not in self.mux.streams:
            self.stream = None
            transport.close()
            return
        super().connection_made(transport)


async def tunnel(request: Request, socket: WebSocket) -> None:
    """See the module."""
    name = request.query.get("tunnel", "")
    if not _NAME.fullmatch(name):
        raise WireError(400, "bad_query", "`tunnel` must be 8 to 64 letters and digits")
    await request.guest.tunnels.serve(name, request.whole("epoch", 0), socket)


SOCKET_ROUTES = (SocketRoute("/v2/tunnel", tunnel),)
