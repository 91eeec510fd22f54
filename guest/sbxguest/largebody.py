"""A large request body of known length, in memory that is used again.

The server's own way copies each byte three times before a handler has it, and new memory for each read costs as much as
the bytes that go into it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable

# Names one among the extensions of its request's scope.
LARGE = "sbx.large"
LARGE_BYTES = 1024 * 1024
_PIECE_BYTES = 1024 * 1024
# One is written while the other one is filled.
_PIECES = 2


def length_of(value: str) -> int:
    """The length a `content-length` says. The parser lets only digits through, and any number of zeros before them."""
    return int(value.lstrip("0") or "0")


class LargeBody:
    """One body, from the connection it comes over to the handler that takes it; both in one event loop.

    Args:
        size_bytes: Of all of it.
        pause: Called when nobody takes what is here.
        resume: Called when there is room again. Safe to repeat.

    Attributes:
        left_bytes: What has not come yet.
        is_cut: It ends before its end.
    """

    def __init__(self, size_bytes: int, pause: Callable[[], None], resume: Callable[[], None]) -> None:
        self.left_bytes = size_bytes
        self.is_cut = False
        self._pause = pause
        self._resume = resume
        self._free: list[bytearray] = []
        self._used = 0
        self._filling: bytearray | None = None
        self._filled_bytes = 0
        self._full: deque[tuple[bytearray, int]] = deque()
        self._bell = asyncio.Event()
        self._is_wanted = True
        self._is_waited_for = False

    def room(self) -> memoryview:
        """What to read into next: never nothing, while something is to come."""
        if self._filling is None:
            self._filling = self._free.pop() if self._free else bytearray(_PIECE_BYTES)
            self._used += 1
        return memoryview(self._filling)[self._filled_bytes :][: self.left_bytes]

    def filled(self, size_bytes: int) -> None:
        """So much was read into what `room` gave."""
        self._filled_bytes += size_bytes
        self.left_bytes -= size_bytes
        if self._filled_bytes == _PIECE_BYTES or not self.left_bytes or self._is_waited_for:
            self._pass_on()

    def take(self, data: bytes) -> None:
        """What came together with the head of the request."""
        while data:
            room = self.room()
            size_bytes = min(len(room), len(data))
            room[:size_bytes] = data[:size_bytes]
            data = data[size_bytes:]
            self.filled(size_bytes)

    def cut(self) -> None:
        """Nothing comes any more. Safe to repeat, and after the end."""
        self.is_cut = self.left_bytes > 0
        self._pass_on()

    def drop(self) -> None:
        """Nobody takes any more of it: what still comes is passed over. Safe to repeat."""
        self._is_wanted = False
        self._full.clear()
        self._free.clear()
        if not self.left_bytes:
            self._filling = None
        self._resume()

    def _pass_on(self) -> None:
        if self._filling is not None and self._filled_bytes and self._is_wanted:
            self._full.append((self._filling, self._filled_bytes))
            self._filling = None
            if self._used >= _PIECES and self.left_bytes:
                self._pause()
        if not self.left_bytes:
            self._filling = None
        self._filled_bytes = 0
        self._bell.set()

    async def pieces(self, *, is_prompt: bool = False) -> AsyncGenerator[memoryview, None]:
        """What comes, to the end or the cut; others are read into the same memory once the next one is asked for.

        They are large, unless all there is `is_prompt` to be had at once.
        """
        while True:
            if is_prompt and not self._full:
                self._pass_on()
            self._bell.clear()
            while self._full:
                buffer, size_bytes = self._full.popleft()
                yield memoryview(buffer)[:size_bytes]
                self._free.append(buffer)
                self._used -= 1
                self._resume()
            if self.is_cut or not self.left_bytes:
                # The request may go on for hours, and its connection after it.
                self._free.clear()
                return
            self._is_waited_for = is_prompt
            await self._bell.wait()
            self._is_waited_for = False
