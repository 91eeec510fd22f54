"""Hints by `watchfiles`, on systems whose kernel we do not ask ourselves.

It loses notes silently, above all in folders that are new, and may die.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import aclosing

from sbxguest.tree.entry import BadRecord, check_path

# Notes that come within a few milliseconds belong to one save. It polls as often, also at rest.
_STEP_MS = 10
_DEBOUNCE_MS = 50
_QUIET_MS = 500

EVERYTHING = b""


async def library_hints(root: bytes) -> AsyncGenerator[set[bytes], None]:
    """Paths relative to a folder, at and below which to look, some at a time; none at first, when watching has begun.

    Raises:
        OSError: It refuses. RuntimeError, UnicodeError, ExceptionGroup: It broke.
    """
    from watchfiles import awatch

    changes = awatch(
        os.fsdecode(root),
        watch_filter=None,
        step=_STEP_MS,
        debounce=_DEBOUNCE_MS,
        rust_timeout=_QUIET_MS,
        yield_on_timeout=True,
        ignore_permission_denied=True,
    )
    is_watching = False
    async with aclosing(changes):
        async for some in changes:
            if not is_watching:
                is_watching = True
                yield set()
            if some:
                yield {_below(root, path) for _, path in some}


def _below(root: bytes, path: str) -> bytes:
    """A path as it is told; one the watcher should not speak of means everything."""
    raw = os.fsencode(path)
    if not raw.startswith(root + b"/"):
        return EVERYTHING
    below = raw[len(root) + 1 :]
    try:
        check_path(below)
    except BadRecord:
        return EVERYTHING
    return below
