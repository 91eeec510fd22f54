"""Relaying raw bytes between pairs of connections, each half closed on its own.

One scratch buffer serves all pairs: an idle one owns no buffer, a blocked one at most `_CHUNK_BYTES` per direction.
Used by the bridge, which is part of every start: it imports nothing but the standard library.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import struct
from collections.abc import Callable

_CHUNK_BYTES = 256 * 1024
_SWEEP_INTERVAL_S = 5.0
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


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

    __slots__ = ("_from_guest", "_from_host", "_guest", "_relay", "host")

    def __init__(self, relay: Relay, host: socket.socket, guest: socket.socket, scratch: memoryview) -> None:
        self._relay = relay
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
            self._relay.sweep_later()

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
        self._relay.forget(self)


class Relay:
    """All pairs of a process; owns both connections of each until they end, or `close`.

    Args:
        on_end: Called for each that ended: there is room for another.
    """

    def __init__(self, on_end: Callable[[], None] = lambda: None) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_end = on_end
        self._links: set[_Link] = set()
        self._scratch = memoryview(bytearray(_CHUNK_BYTES))
        self._sweep: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._links)

    def join(self, host: socket.socket, guest: socket.socket, first: bytes = b"") -> None:
        """Relay between two connections; `first` was read from the host already."""
        link = _Link(self, host, guest, self._scratch)
        self._links.add(link)
        link.start(first)

    def close(self) -> None:
        """Cut every pair."""
        for link in list(self._links):
            link.abort()

    def forget(self, link: _Link) -> None:
        """Drop a pair that is closed."""
        self._links.discard(link)
        self._on_end()

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
