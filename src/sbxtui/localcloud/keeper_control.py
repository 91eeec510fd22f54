"""The keeper's control socket: JSON lines in, one JSON line back each. Single-threaded, without asyncio, to stay
small.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_REQUEST_BYTES = 65_536
_CLIENTS_MAX = 64

# A handler answers now with a dict, or later by None and `Control.answer`.
Handler = Callable[["Client", dict[str, Any]], dict[str, Any] | None]


@dataclass(slots=True, eq=False)
class Client:
    """One connection. `is_waiting`: its last request is answered later."""

    sock: socket.socket
    received: bytearray = field(default_factory=bytearray)
    is_waiting: bool = False


class Control:
    """Listens at a path with mode 0600; owns the listener and its connections until `close`."""

    def __init__(self, path: Path, selector: selectors.BaseSelector, handler: Handler) -> None:
        self._path = path
        self._selector = selector
        self._handler = handler
        self._clients: set[Client] = set()
        self._listener = listen_private(path)
        selector.register(self._listener, selectors.EVENT_READ, self._on_acceptable)

    def answer(self, client: Client, reply: dict[str, Any]) -> None:
        """Send a reply; a client that does not take it is cut."""
        client.is_waiting = False
        try:
            client.sock.settimeout(1.0)
            client.sock.sendall(json.dumps(reply).encode() + b"\n")
            client.sock.setblocking(False)
        except OSError:
            self._drop(client)

    @property
    def waiting(self) -> list[Client]:
        """Clients whose answer is due."""
        return [client for client in self._clients if client.is_waiting]

    def close(self) -> None:
        """Take the socket's name away and cut those who wait for nothing; the others still get their answer."""
        for client in [client for client in self._clients if not client.is_waiting]:
            self._drop(client)
        self._selector.unregister(self._listener)
        self._listener.close()
        self._path.unlink(missing_ok=True)

    def _on_acceptable(self) -> None:
        with contextlib.suppress(BlockingIOError, ConnectionAbortedError):
            sock, _ = self._listener.accept()
            if len(self._clients) >= _CLIENTS_MAX:
                sock.close()
                return
            sock.setblocking(False)
            client = Client(sock)
            self._clients.add(client)
            self._selector.register(sock, selectors.EVENT_READ, lambda: self._on_readable(client))

    def _on_readable(self, client: Client) -> None:
        try:
            part = client.sock.recv(_REQUEST_BYTES)
        except BlockingIOError:
            return
        except OSError:
            part = b""
        client.received += part
        if not part or len(client.received) > _REQUEST_BYTES:
            self._drop(client)
            return
        while b"\n" in client.received and client in self._clients:
            line, _, rest = client.received.partition(b"\n")
            client.received = bytearray(rest)
            self._serve(client, bytes(line))

    def _serve(self, client: Client, line: bytes) -> None:
        try:
            request = json.loads(line)
            reply = self._handler(client, request) if isinstance(request, dict) else {"error": "no object"}
        except ValueError as exc:
            reply = {"error": f"no JSON: {exc}"}
        if reply is None:
            client.is_waiting = True
        else:
            self.answer(client, reply)

    def _drop(self, client: Client) -> None:
        if client in self._clients:
            self._clients.discard(client)
            self._selector.unregister(client.sock)
            client.sock.close()


def listen_private(path: Path) -> socket.socket:
    """A listening socket only its owner may connect to; it takes its name once it listens, replacing a stale one.

    Raises:
        OSError: The folder is missing or cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    old_umask = os.umask(0o177)
    try:
        temporary.unlink(missing_ok=True)
        listener.bind(str(temporary))
        listener.listen(64)
        temporary.replace(path)
    except OSError:
        listener.close()
        temporary.unlink(missing_ok=True)
        raise
    finally:
        os.umask(old_umask)
    listener.setblocking(False)
    return listener


def watch_signals(selector: selectors.BaseSelector, on_terminate: Callable[[], None]) -> None:
    """Let SIGTERM end the sandbox, and the end of a child or a name in a watched folder wake the selector; hang-ups and
    interrupts are not for us.
    """
    wakeup_read, wakeup_write = os.pipe()
    for descriptor in (wakeup_read, wakeup_write):
        os.set_blocking(descriptor, False)
    signal.set_wakeup_fd(wakeup_write, warn_on_full_buffer=False)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    for number in (signal.SIGCHLD, signal.SIGIO):
        signal.signal(number, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda *_: on_terminate())

    def drain() -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(wakeup_read, 4096)

    selector.register(wakeup_read, selectors.EVENT_READ, drain)
