"""Hints by the kernel's own notes, on Linux: nothing is asked at rest, and what was lost is told."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from sbxguest.tree.inotify import Inotify
from sbxguest.tree.root import Root
from sbxtui.services.sync.ignores import decides_what_is_left_out, texts_in

# Notes that come within a few milliseconds belong to one save. New names may be passing ones, of an editor for one;
# a few files that were there and that their writers have closed are as they were meant.
_SETTLE_MS, _SETTLE_SAVED_MS, _FEW = 10, 3, 4
_SETTLE_MAX_S = 0.05

# None: some were lost.
Hints = set[bytes] | None


class KernelWatch:
    """Watches a folder in a thread of its own. Used once.

    Args:
        root: The folder.
        on_hint: Called in the event loop with paths relative to it; first with none, when watching has begun.
        is_known: Whether something was at a path before. From any thread.
    """

    def __init__(
        self, root: bytes, on_hint: Callable[[Hints], None], is_known: Callable[[bytes], bool] = lambda path: False
    ) -> None:
        self._root = root
        self._on_hint = on_hint
        self._is_known = is_known
        self._loop = asyncio.get_running_loop()
        self._wake_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._lock = threading.Lock()
        self._is_stopped = False

    async def run(self) -> None:
        """Watch until the folder itself is moved or removed.

        Raises:
            OSError: The kernel refuses. TreeError: There is no folder.
        """
        executor = ThreadPoolExecutor(1, thread_name_prefix="watch")
        try:
            await self._loop.run_in_executor(executor, self._follow)
        finally:
            with self._lock:
                self._is_stopped = True
                if self._wake_fd >= 0:
                    os.eventfd_write(self._wake_fd, 1)
            executor.shutdown(wait=False)

    def _follow(self) -> None:
        try:
            root = Root(os.fsdecode(self._root))
            try:
                with contextlib.closing(Inotify(root, texts_in)) as notes:
                    self._tell(self._on_hint, set())
                    self._read(notes)
            finally:
                root.close()
        finally:
            with self._lock:
                os.close(self._wake_fd)
                self._wake_fd = -1

    def _read(self, notes: Inotify) -> None:
        poll = select.poll()
        poll.register(notes.fd, select.POLLIN)
        poll.register(self._wake_fd, select.POLLIN)
        while not notes.has_root_gone:
            poll.poll()
            found: set[bytes | None] = set()
            saved: set[bytes | None] = set()
            until_s = time.monotonic() + _SETTLE_MAX_S
            while not self._is_stopped:
                some = set(notes.read())
                found |= some
                saved = (saved - some).union(path for path in notes.ended if self._is_known(path))
                is_saved = len(found) <= _FEW and found <= saved
                if time.monotonic() > until_s or not poll.poll(_SETTLE_SAVED_MS if is_saved else _SETTLE_MS):
                    break
            if self._is_stopped:
                return
            paths = {path for path in found if path is not None}
            if any(map(decides_what_is_left_out, paths)):
                # Before anybody looks: what comes later is noted by the new watches.
                notes.refresh()
            self._tell(self._on_hint, None if None in found else paths)

    def _tell(self, call: Callable[..., object], said: object) -> None:
        """Have the event loop call something; when it has ended, nobody listens."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(call, said)
