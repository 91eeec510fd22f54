"""Sends what a mux has over the connection of now, as soon as the loop comes to it and at the pace that takes it.

No task stands between a socket and the tunnel: waking one costs a small request more than all of its frames.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from sbxguest.mux.mux import Mux

# Then others of the loop have their turn.
_AT_ONCE = 4


class Carrier:
    """Carries for a mux until it is closed.

    Args:
        mux: Whose messages; only one carries at a time.
        write: Sends one message, or keeps it; `hold` says that it keeps enough.
    """

    def __init__(self, mux: Mux, write: Callable[[bytes], None]) -> None:
        self._mux = mux
        self._write = write
        self._loop = asyncio.get_running_loop()
        self._is_held = False
        self._due: asyncio.Handle | None = None
        mux.on_ready = self._wake

    def hold(self, is_full: bool) -> None:
        """The connection takes no more for now, or does again."""
        self._is_held = is_full
        self._wake()

    def close(self) -> None:
        """Carry nothing more."""
        self._is_held = True
        if self._due is not None:
            self._due.cancel()

    def _wake(self) -> None:
        # The first message goes at once, what comes behind it in this round of the loop together, and at its end. Set
        # first: asking for a message may wake us again, and that one must not overtake it.
        if self._due is None and not self._is_held:
            self._due = self._loop.call_soon(self._send)
            if message := self._mux.next_message():
                self._write(message)

    def _send(self) -> None:
        for _ in range(_AT_ONCE):
            if self._is_held or not (message := self._mux.next_message()):
                self._due = None
                return
            self._write(message)
        self._due = self._loop.call_soon(self._send)
