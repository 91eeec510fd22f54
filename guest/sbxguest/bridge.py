"""Relay between one unix socket and the guest's loopback.

    python3 -I bridge.py SOCKET        python3 -m sbxguest.bridge SOCKET

A client connects to SOCKET and writes `PORT\\n`; the bridge connects to 127.0.0.1:PORT, else [::1]:PORT, answers `+` or
`-`, and from then on relays raw bytes both ways, each half closed on its own. `SBX_BRIDGE_MAP` (`8080=41234,80=4123`)
says which port is really listened on for a port the host names, for a runtime without a network of its own. A client
that writes `out\\n` parks its connection for programs that want out, where `SBX_EGRESS_PORT` says that there is a way.

One thread, one scratch buffer for all connections: an idle connection owns no buffer, a blocked one at most
`_CHUNK_BYTES` per direction. Part of every start: it imports nothing but the standard library and what lies beside it.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import select
import signal
import socket
import struct
import sys
from collections.abc import Mapping
from pathlib import Path

if not __package__:
    # Started as a file, with nothing of ours on the path.
    sys.path.insert(0, str(Path(__file__).absolute().parents[1]))

from sbxguest.acceptor import Acceptor
from sbxguest.listeners import listen_at, listen_on, raise_fd_limit
from sbxguest.outlet import PARK_WORD, Outlet

log = logging.getLogger("sbxguest.bridge")

_CHUNK_BYTES = 256 * 1024
_LINE_BYTES = 6
_PARK = -1
_LINE_TIMEOUT_S = 5.0
_CONNECT_TIMEOUT_S = 10.0
_SWEEP_INTERVAL_S = 5.0
_SPARE_FDS = 24
_LOOPBACKS = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


def parse_port_map(text: str) -> dict[int, int]:
    """`8080=41234,9000=41235` as a dict; parts that are no pair of ports are left out and logged."""
    ports: dict[int, int] = {}
    for part in text.replace(",", " ").split():
        logical, _, actual = part.partition("=")
        if _is_port(logical) and _is_port(actual):
            ports[int(logical)] = int(actual)
        else:
            log.warning("SBX_BRIDGE_MAP: %r is not PORT=PORT", part)
    return ports


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 5 and 0 < int(text) <= 65_535


class _Flow:
    """One direction of a connection: bytes from `source` to `sink`, then the half close."""

    __slots__ = ("_link", "_loop", "_rest", "_scratch", "_sink", "_source", "is_done")

    def __init__(self, link: _Link, source: socket.socket, sink: socket.socket, scratch: memoryview) -> None:
        self._link = link
        self._loop = asyncio.get_running_loop()
        self._source = source
        self._sink = sink
        self._scratch = scratch
        self._rest = memoryview(b"")
        self.is_done = False

    def start(self, first: bytes = b"") -> None:
        """Begin relaying; `first` was read ahead and goes first."""
        if first:
            self._rest = memoryview(first)
            self._loop.add_writer(self._sink, self._on_writable)
        else:
            self._loop.add_reader(self._source, self._on_readable)

    def stop(self) -> None:
        """Leave the event loop; both sockets stay open."""
        self.is_done = True
        self._rest = memoryview(b"")
        self._loop.remove_reader(self._source)
        self._loop.remove_writer(self._sink)

    def _on_readable(self) -> None:
        try:
            count = self._source.recv_into(self._scratch)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self._link.abort()
            return
        if count == 0:
            self._finish()
            return
        sent = self._send(self._scratch[:count])
        if sent is not None and sent < count:
            # Copied out: the scratch buffer belongs to whoever reads next.
            self._rest = memoryview(bytes(self._scratch[sent:count]))
            self._loop.remove_reader(self._source)
            self._loop.add_writer(self._sink, self._on_writable)

    def _on_writable(self) -> None:
        sent = self._send(self._rest)
        if sent is None:
            return
        self._rest = self._rest[sent:]
        if not self._rest:
            self._rest = memoryview(b"")
            self._loop.remove_writer(self._sink)
            self._loop.add_reader(self._source, self._on_readable)

    def _send(self, data: memoryview) -> int | None:
        try:
            return self._sink.send(data)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError:
            # Nobody reads there any more; what that side still sends is not lost by it.
            self._finish()
            return None

    def _finish(self) -> None:
        self.stop()
        with contextlib.suppress(OSError):
            self._sink.shutdown(socket.SHUT_WR)
        self._link.on_flow_done()


class _Link:
    """One relayed connection: the host's socket, the guest's socket and a flow each way."""

    __slots__ = ("_bridge", "_from_guest", "_from_host", "_guest", "host")

    def __init__(self, bridge: Bridge, host: socket.socket, guest: socket.socket, scratch: memoryview) -> None:
        self._bridge = bridge
        self.host = host
        self._guest = guest
        self._from_host = _Flow(self, host, guest, scratch)
        self._from_guest = _Flow(self, guest, host, scratch)

    @property
    def is_half_closed(self) -> bool:
        """Whether the host said its last byte and the guest did not."""
        return self._from_host.is_done and not self._from_guest.is_done

    def start(self, first: bytes) -> None:
        """Relay both ways; `first` are bytes the host sent behind its port line."""
        self._from_host.start(first)
        self._from_guest.start()

    def on_flow_done(self) -> None:
        """Close once both directions have ended."""
        if self._from_host.is_done and self._from_guest.is_done:
            self._close()
        elif self.is_half_closed:
            self._bridge.sweep_later()

    def abort(self) -> None:
        """Close both sockets so that the guest's peer sees a reset, never a clean end."""
        with contextlib.suppress(OSError):
            self._guest.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self._close()

    def _close(self) -> None:
        self._from_host.stop()
        self._from_guest.stop()
        self.host.close()
        self._guest.close()
        self._bridge.forget(self)


class Bridge:
    """Serves one listening unix socket; owns it and every connection until `close`."""

    def __init__(self, listener: socket.socket, port_map: Mapping[int, int], *, max_links: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._port_map = dict(port_map)
        self._max_links = max_links
        self._links: set[_Link] = set()
        self._greetings: set[asyncio.Task[None]] = set()
        self._scratch = memoryview(bytearray(_CHUNK_BYTES))
        self._sweep: asyncio.TimerHandle | None = None
        self._outlet = self._open_outlet()
        self._acceptor = Acceptor(listener, has_room=self._has_room, take=self._take)

    def close(self) -> None:
        """Stop listening and cut every connection."""
        if self._outlet is not None:
            self._outlet.close()
        self._acceptor.close()
        for task in list(self._greetings):
            task.cancel()
        for link in list(self._links):
            link.abort()

    def join(self, host: socket.socket, guest: socket.socket, first: bytes = b"") -> None:
        """Relay between two connections; `first` was read from the host already."""
        link = _Link(self, host, guest, self._scratch)
        self._links.add(link)
        link.start(first)

    def _open_outlet(self) -> Outlet | None:
        port = os.environ.get("SBX_EGRESS_PORT", "")
        listener = listen_on(int(port)) if _is_port(port) else None
        return Outlet(listener, self.join) if listener else None

    def forget(self, link: _Link) -> None:
        """Drop a closed connection and accept again if the table was full."""
        self._links.discard(link)
        self._acceptor.go_on()

    def sweep_later(self) -> None:
        """Look in a while for hosts that half-closed first and went away later: no event tells that."""
        if self._sweep is None:
            self._sweep = self._loop.call_later(_SWEEP_INTERVAL_S, self._sweep_gone_hosts)

    def _sweep_gone_hosts(self) -> None:
        self._sweep = None
        waiting = {link.host.fileno(): link for link in self._links if link.is_half_closed}
        poller = select.poll()
        for fd in waiting:
            poller.register(fd, 0)
        for fd, events in poller.poll(0) if waiting else []:
            if events & select.POLLHUP:
                waiting.pop(fd).abort()
        if waiting:
            self.sweep_later()

    def _has_room(self) -> bool:
        return len(self._links) + len(self._greetings) < self._max_links

    def _take(self, host: socket.socket) -> None:
        task = self._loop.create_task(self._greet(host))
        self._greetings.add(task)
        task.add_done_callback(self._on_greeted)

    def _on_greeted(self, task: asyncio.Task[None]) -> None:
        self._greetings.discard(task)
        if not task.cancelled() and (exc := task.exception()) is not None:
            log.error("greeting failed: %r", exc)
        self._acceptor.go_on()

    async def _greet(self, host: socket.socket) -> None:
        guest: socket.socket | None = None
        is_linked = False
        try:
            async with asyncio.timeout(_LINE_TIMEOUT_S):
                port, first = await self._read_port(host)
            guest = await self._dial(port) if port > 0 else None
            outlet = self._outlet if port == _PARK else None
            async with asyncio.timeout(_LINE_TIMEOUT_S):
                await self._loop.sock_sendall(host, b"-" if guest is None and outlet is None else b"+")
            if guest is not None:
                self.join(host, guest, first)
                is_linked = True
            elif outlet is not None:
                outlet.park(host)
                is_linked = True
        except (OSError, TimeoutError):
            pass
        finally:
            if not is_linked:
                host.close()
                if guest is not None:
                    guest.close()

    async def _read_port(self, host: socket.socket) -> tuple[int, bytes]:
        """The port asked for (0: not a port line) and the bytes behind the line."""
        line = b""
        while b"\n" not in line:
            if len(line) >= _LINE_BYTES:
                return 0, b""
            more = await self._loop.sock_recv(host, _LINE_BYTES - len(line))
            if not more:
                return 0, b""
            line += more
        head, _, first = line.partition(b"\n")
        text = head.decode("latin-1")
        if text == PARK_WORD:
            return _PARK, b""
        return (int(text), first) if _is_port(text) else (0, b"")

    async def _dial(self, port: int) -> socket.socket | None:
        actual = self._port_map.get(port, port)
        for family, address in _LOOPBACKS:
            try:
                guest = socket.socket(family, socket.SOCK_STREAM)
            except OSError:
                continue
            try:
                guest.setblocking(False)
                guest.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                async with asyncio.timeout(_CONNECT_TIMEOUT_S):
                    await self._loop.sock_connect(guest, (address, actual))
                # A free port inside the range of outgoing ports can connect to itself.
                if guest.getsockname() != guest.getpeername():
                    return guest
                guest.close()
            except (OSError, TimeoutError):
                guest.close()
            except asyncio.CancelledError:
                guest.close()
                raise
        return None


async def serve(path: Path, port_map: Mapping[int, int]) -> None:
    """Relay until SIGTERM or SIGINT; then cut every connection and take the socket's name away.

    SIGUSR1 does the latter alone and waits for SIGUSR2 to listen again: a sandbox is saved without its host's sockets.
    """
    max_links = max(4, (raise_fd_limit() - _SPARE_FDS) // 2)
    turned: asyncio.Queue[signal.Signals] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2):
        loop.add_signal_handler(number, turned.put_nowait, number)
    last = signal.SIGUSR2
    while last not in (signal.SIGTERM, signal.SIGINT):
        if last == signal.SIGUSR1:
            last = await turned.get()
            continue
        bridge = Bridge(listen_at(path), port_map, max_links=max_links)
        inode = path.stat().st_ino
        try:
            last = await turned.get()
        finally:
            bridge.close()
            with contextlib.suppress(OSError):
                if path.stat().st_ino == inode:
                    path.unlink()


def main(argv: list[str]) -> int:
    """Run the bridge; returns the exit code."""
    if len(argv) != 2 or not argv[1]:
        sys.stderr.write("usage: bridge.py SOCKET\n")
        return 2
    logging.basicConfig(level=logging.INFO, format="bridge: %(message)s")
    path = Path(argv[1])
    try:
        # Socket addresses end at 108 bytes; relative to its folder a socket's name is short.
        os.chdir(path.parent)
        asyncio.run(serve(Path(path.name), parse_port_map(os.environ.get("SBX_BRIDGE_MAP", ""))))
    except OSError as exc:
        sys.stderr.write(f"bridge: {argv[1]}: {os.strerror(exc.errno or errno.EIO)}\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv))
