"""Runs on the host of a virtual machine, and lets its clients in: each gets one of the calls that wait.

    python3 -I -S -B ferry.py SOCKET CALLS_SOCKET

The bridge inside calls CALLS_SOCKET; from the first call on, clients connect to SOCKET as to the bridge itself.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from pathlib import Path

if not __package__:
    # Started as a file, with nothing of ours on the path.
    sys.path.insert(0, str(Path(__file__).absolute().parents[1]))

from sbxguest.acceptor import Acceptor
from sbxguest.listeners import listen_at, raise_fd_limit
from sbxguest.outlet import Outlet
from sbxguest.relay import Relay

_SPARE_FDS = 24


class Ferry:
    """Owns both sockets and all connections until `close`."""

    def __init__(self, path: Path, calls: Path) -> None:
        self._path = path
        self._most = max(4, (raise_fd_limit() - _SPARE_FDS) // 2)
        self._relay = Relay(self._on_room)
        self._clients: Outlet | None = None
        self._calls = Acceptor(listen_at(calls), has_room=self._has_room, take=self._take_call)

    def close(self) -> None:
        """Let nobody in any more and cut every connection."""
        self._calls.close()
        if self._clients is not None:
            self._clients.close()
        self._relay.close()

    def _has_room(self) -> bool:
        return len(self._relay) < self._most

    def _on_room(self) -> None:
        self._calls.go_on()

    def _take_call(self, call: socket.socket) -> None:
        if self._clients is None:
            self._clients = Outlet(listen_at(self._path), self._join, nobody=b"")
        self._clients.park(call)

    def _join(self, call: socket.socket, client: socket.socket) -> None:
        self._relay.join(client, call)


async def serve(path: Path, calls: Path) -> None:
    """Until SIGTERM."""
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    ferry = Ferry(path, calls)
    try:
        await ended.wait()
    finally:
        ferry.close()


def main(argv: list[str]) -> int:
    """Run it; returns the exit code."""
    if len(argv) != 3:
        sys.stderr.write("usage: ferry.py SOCKET CALLS_SOCKET\n")
        return 2
    try:
        asyncio.run(serve(Path(argv[1]), Path(argv[2])))
    except OSError as exc:
        sys.stderr.write(f"ferry: {exc}\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv))
