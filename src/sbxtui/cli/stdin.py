"""Our standard input as a stream that never holds up the end of the program."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator

from sbxtui.core.threads import run_abandonable

_CHUNK_BYTES = 1 << 16


async def read_stdin() -> AsyncIterator[bytes]:
    """Pieces as they come, a typed line at once; a read that waits for ever is left behind when nobody wants it."""
    while chunk := await run_abandonable(_read):
        yield chunk


def _read() -> bytes:
    return os.read(sys.stdin.fileno(), _CHUNK_BYTES)
