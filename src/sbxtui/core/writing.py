"""Writing to a descriptor that is shared with other programs."""

from __future__ import annotations

import os
import select


def write_all(number: int, data: bytes) -> None:
    """Write all of it, past Python's buffers, which a write that is abandoned would leave locked.

    Raises:
        OSError: It cannot be written; `BrokenPipeError`: nobody reads any more.
    """
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(number, rest) :]
        except BlockingIOError:
            # Another program set the file it shares with us to non-blocking.
            select.select([], [number], [])
