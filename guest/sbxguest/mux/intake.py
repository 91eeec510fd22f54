"""Where the bytes of a tunnel's connection come in.

Memory for each read of a quarter of a megabyte costs as much as the bytes: the same is used again.
"""

from __future__ import annotations

from sbxguest.mux.frames import COPIED_BYTES, Part

# The largest message with its heads, in one read.
_READ_BYTES = 516 * 1024
_LARGE_BYTES = 4 * 1024 * 1024


class Intake:
    """A buffer to read into: always the same one, but for parts of it that somebody keeps."""

    def __init__(self) -> None:
        # The C library gives a large block back to the kernel at once, and each page of the next one is a fault: until
        # it was given a larger one, by which it learns that they are usual here.
        bytearray(_LARGE_BYTES)
        self._buffer = bytearray(_READ_BYTES)
        self._is_shown = False

    def room(self) -> memoryview:
        """What to read into next."""
        if self._is_shown:
            self._is_shown = False
            try:
                # Transports of newer Pythons keep what they cannot send where it lies; what is kept may not be resized.
                self._buffer.append(self._buffer.pop())
            except BufferError:
                self._buffer = bytearray(_READ_BYTES)
        return memoryview(self._buffer)

    def filled(self, size: int) -> Part:
        """What was read. Much of it lies in the buffer, until `room` is asked for again."""
        if size < COPIED_BYTES:
            return bytes(memoryview(self._buffer)[:size])
        self._is_shown = True
        return memoryview(self._buffer)[:size]
