"""What a person types at their terminal, always read, so that the wish to leave is seen whatever the program does."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncGenerator

_READ_BYTES = 1 << 16
# Ctrl-], as a byte, and as terminals with the kitty protocol or modifyOtherKeys write it.
_LEAVING = (b"\x1d", b"\x1b[93;5u", b"\x1b[27;5;93~")
_DETACH = re.compile(b"|".join(map(re.escape, _LEAVING)))
# A key that comes in pieces is whole within this; a lone escape is passed on after it.
_REST_OF_KEY_S = 0.025
# So long what was typed before leaving may still be passed on.
_LAST_WORDS_S = 0.5
# More than anybody pastes; a program that takes none of it must not take our memory instead.
_MAX_WAITING_BYTES = 16 << 20


class Keyboard:
    """What is typed at a terminal, as a stream of pieces that ends when the person wants to leave or hung up.

    Args:
        number: The terminal's descriptor; it is read only when there is something.
        max_waiting_bytes: What is typed beyond this while nobody takes it is dropped.

    Attributes:
        has_left: Set when the person is to be let go.
        has_hung_up: Whether the terminal is gone.
        dropped_bytes: How much was dropped.
    """

    def __init__(self, number: int, *, max_waiting_bytes: int = _MAX_WAITING_BYTES) -> None:
        self._number = number
        self._max_waiting_bytes = max_waiting_bytes
        self._waiting = bytearray()
        # What may be the beginning of the key that leaves.
        self._held = b""
        self._held_timer: asyncio.TimerHandle | None = None
        self._has_news = asyncio.Event()
        self._is_ending = False
        self.has_left = asyncio.Event()
        self.has_hung_up = False
        self.dropped_bytes = 0

    async def typed(self) -> AsyncGenerator[bytes, None]:
        """Pieces as they come: all that was typed while the last one was on its way."""
        loop = asyncio.get_running_loop()
        if not self._is_ending:
            loop.add_reader(self._number, self._read)
        try:
            while self._waiting or not self._is_ending:
                await self._has_news.wait()
                self._has_news.clear()
                piece = bytes(self._waiting)
                self._waiting.clear()
                if piece:
                    yield piece
            self.has_left.set()
        finally:
            self._stop()

    def hang_up(self) -> None:
        """The terminal is gone: nobody will type or read any more."""
        self.has_hung_up = True
        self._end()
        self.has_left.set()

    def _read(self) -> None:
        try:
            piece = os.read(self._number, _READ_BYTES)
        except OSError:
            piece = b""
        if not piece:
            self.hang_up()
            return
        piece, self._held = self._held + piece, b""
        leaving = _DETACH.search(piece)
        if leaving:
            self._take(piece[: leaving.start()])
            self._end()
            # What was typed before goes first, if it is taken at all.
            asyncio.get_running_loop().call_later(_LAST_WORDS_S, self.has_left.set)
            return
        self._hold(piece)

    def _hold(self, piece: bytes) -> None:
        """Take all but an end that may become the key that leaves; that waits a moment for its rest."""
        self._held = piece[len(piece) - _begun_bytes(piece) :]
        self._take(piece[: len(piece) - len(self._held)])
        if self._held_timer is not None:
            self._held_timer.cancel()
        self._held_timer = asyncio.get_running_loop().call_later(_REST_OF_KEY_S, self._let_go) if self._held else None

    def _let_go(self) -> None:
        held, self._held = self._held, b""
        self._take(held)

    def _take(self, piece: bytes) -> None:
        room = max(0, self._max_waiting_bytes - len(self._waiting))
        self._waiting += piece[:room]
        self.dropped_bytes += len(piece[room:])
        if piece:
            self._has_news.set()

    def _end(self) -> None:
        self._is_ending = True
        self._stop()
        self._has_news.set()

    def _stop(self) -> None:
        asyncio.get_running_loop().remove_reader(self._number)
        if self._held_timer is not None:
            self._held_timer.cancel()


def _begun_bytes(piece: bytes) -> int:
    """How many bytes at the end of `piece` begin the key that leaves without being all of it."""
    longest = max(map(len, _LEAVING)) - 1
    for count in range(min(longest, len(piece)), 0, -1):
        if any(key.startswith(piece[-count:]) for key in _LEAVING):
            return count
    return 0
