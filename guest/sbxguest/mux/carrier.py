"""Sends what a mux has over the connection of now, as soon as the loop comes to it and at the pace that takes it.

No task stands between a socket and the tunnel: waking one costs a small request more than all of its frames.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from sbxguest.mux.frames import Part
from sbxguest.mux.mux import Mux

# Then others of the loop have their turn.
_AT_ONCE = 4
# What comes so soon after a message is likely of the same round of the loop, and more may be.
_ROUND_S = 0.0001


class Carrier:
    """Carries for a mux until it is closed.

    Args:
        mux: Whose messages; only one carries at a time.
        write: Sends one message, which it gets in parts, or keeps it; `hold` says that it keeps enough.
    """

    def __init__(self, mux: Mux, write: Callable[[Sequence[Part]], None]) -> None:
        self._mux = mux
        self._write = write
        self._loop = asyncio.get_running_loop()
        self._is_held = False
        self._is_writing = False
        self._woken_at_s = 0.0
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
        # The first messages go at once, what comes behind them in this round of the loop together, and at its end;
        # where they come one by one, there is nothing to wait for. Asking for a message may wake us again, and that one
        # must not overtake it.
        if self._due is not None or self._is_held or self._is_writing:
            return
        self._is_writing = True
        if message := self._mux.next_message():
            self._write(message)
        self._is_writing = False
        before_s, self._woken_at_s = self._woken_at_s, self._loop.time()
        if self._mux.has_more or self._woken_at_s - before_s < _ROUND_S:
            self._due = self._loop.call_soon(self._send)

    def _send(self) -> None:
        for _ in range(_AT_ONCE):
            if self._is_held or not (message := self._mux.next_message()):
                self._due = None
                return
            self._write(message)
        self._due = self._loop.call_soon(self._send)
