"""Relay between one unix socket and the guest's loopback.

    python3 -I bridge.py SOCKET        python3 -m sbxguest.bridge SOCKET        python3 -I bridge.py vsock:PORT

A client connects to SOCKET and writes `PORT\\n`; the bridge connects to 127.0.0.1:PORT, else [::1]:PORT, answers `+` or
`-`, and from then on relays raw bytes both ways, each half closed on its own. `SBX_BRIDGE_MAP` (`8080=41234,80=4123`)
says which port is really listened on for a port the host names, for a runtime without a network of its own. A client
that writes `out\\n` parks its connection for programs that want out, where `SBX_EGRESS_PORT` says that there is a way.
In a virtual machine clients come over connections that the bridge opens to its host's vsock PORT.

One thread. Part of every start: it imports nothing but the standard library and what lies beside it.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Protocol

if not __package__:
    # Started as a file, with nothing of ours on the path.
    sys.path.insert(0, str(Path(__file__).absolute().parents[1]))

from sbxguest.acceptor import Acceptor
from sbxguest.listeners import listen_at, listen_on, raise_fd_limit
from sbxguest.outlet import PARK_WORD, Outlet
from sbxguest.relay import Relay

log = logging.getLogger("sbxguest.bridge")

_LINE_BYTES = 6
_PARK = -1
_LINE_TIMEOUT_S = 5.0
_CONNECT_TIMEOUT_S = 10.0
_SPARE_FDS = 24
_LOOPBACKS = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))


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


class Door(Protocol):
    """By which clients come in: they connect, or are called."""

    def go_on(self) -> None:
        """There may be room again."""
        ...

    def close(self) -> None:
        """Let nobody in any more."""
        ...


class OpenDoor(Protocol):
    """Opens one; arguments are an `Acceptor`'s."""

    def __call__(self, *, has_room: Callable[[], bool], take: Callable[[socket.socket], None]) -> Door:
        """From now on clients come in."""
        ...


class Bridge:
    """Serves the clients that come in by one door; owns it and every connection until `close`.

    Args:
        open_door: Opens it; told whether there is room, and who takes those who come.
        port_map: As `SBX_BRIDGE_MAP`.
        max_links: How many clients may be there at once.
    """

    def __init__(self, open_door: OpenDoor, port_map: Mapping[int, int], *, max_links: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._port_map = dict(port_map)
        self._max_links = max_links
        self._relay = Relay(self._on_room)
        self._greetings: set[asyncio.Task[None]] = set()
        self._outlet = self._open_outlet()
        self._door = open_door(has_room=self._has_room, take=self._take)

    def close(self) -> None:
        """Let nobody in any more and cut every connection."""
        if self._outlet is not None:
            self._outlet.close()
        self._door.close()
        for task in list(self._greetings):
            task.cancel()
        self._relay.close()

    def _open_outlet(self) -> Outlet | None:
        port = os.environ.get("SBX_EGRESS_PORT", "")
        listener = listen_on(int(port)) if _is_port(port) else None
        return Outlet(listener, self._relay.join) if listener else None

    def _on_room(self) -> None:
        self._door.go_on()

    def _has_room(self) -> bool:
        return len(self._relay) + len(self._greetings) < self._max_links

    def _take(self, host: socket.socket) -> None:
        task = self._loop.create_task(self._greet(host))
        self._greetings.add(task)
        task.add_done_callback(self._on_greeted)

    def _on_greeted(self, task: asyncio.Task[None]) -> None:
        self._greetings.discard(task)
        if not task.cancelled() and (exc := task.exception()) is not None:
            log.error("greeting failed: %r", exc)
        self._door.go_on()

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
                self._relay.join(host, guest, first)
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
    turned = _signals(signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)
    last = signal.SIGUSR2
    while last not in (signal.SIGTERM, signal.SIGINT):
        if last == signal.SIGUSR1:
            last = await turned.get()
            continue
        bridge = Bridge(partial(Acceptor, listen_at(path)), port_map, max_links=_max_links())
        inode = path.stat().st_ino
        try:
            last = await turned.get()
        finally:
            bridge.close()
            with contextlib.suppress(OSError):
                if path.stat().st_ino == inode:
                    path.unlink()


async def serve_host(port: int, port_map: Mapping[int, int]) -> None:
    """The same for a virtual machine's host, which is called on its vsock port."""
    # Only here: it is no part of other starts.
    from sbxguest.caller import Caller, dial_host

    turned = _signals(signal.SIGTERM, signal.SIGINT)
    bridge = Bridge(partial(Caller, partial(dial_host, port)), port_map, max_links=_max_links())
    try:
        await turned.get()
    finally:
        bridge.close()


def _signals(*numbers: signal.Signals) -> asyncio.Queue[signal.Signals]:
    turned: asyncio.Queue[signal.Signals] = asyncio.Queue()
    for number in numbers:
        asyncio.get_running_loop().add_signal_handler(number, turned.put_nowait, number)
    return turned


def _max_links() -> int:
    return max(4, (raise_fd_limit() - _SPARE_FDS) // 2)


def main(argv: list[str]) -> int:
    """Run the bridge; returns the exit code."""
    if len(argv) != 2 or not argv[1]:
        sys.stderr.write("usage: bridge.py SOCKET, or vsock:PORT\n")
        return 2
    logging.basicConfig(level=logging.INFO, format="bridge: %(message)s")
    port_map = parse_port_map(os.environ.get("SBX_BRIDGE_MAP", ""))
    place, _, port = argv[1].rpartition(":")
    if place == "vsock" and _is_port(port):
        asyncio.run(serve_host(int(port), port_map))
        return 0
    path = Path(argv[1])
    try:
        # Socket addresses end at 108 bytes; relative to its folder a socket's name is short.
        os.chdir(path.parent)
        asyncio.run(serve(Path(path.name), port_map))
    except OSError as exc:
        sys.stderr.write(f"bridge: {argv[1]}: {os.strerror(exc.errno or errno.EIO)}\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv))
