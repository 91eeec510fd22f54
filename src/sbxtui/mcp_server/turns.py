"""Calls about one thing, one after the other, in the order in which they came."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager, nullcontext
from weakref import WeakValueDictionary


class Turns:
    """The turns of one server."""

    def __init__(self) -> None:
        # A lock lets in who came first; one that nobody holds or waits for is kept by nobody.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def of(self, what: str) -> AbstractAsyncContextManager[None]:
        """To be entered before anything is waited for; empty is about nothing, and waits for nobody."""
        return self._locks.setdefault(what, asyncio.Lock()) if what else nullcontext()
