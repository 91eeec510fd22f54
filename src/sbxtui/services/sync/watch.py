"""Hints that something in a folder of this machine may have changed.

Hints only: the watcher loses events silently, above all in folders that are new, and may die. So every path it names is
looked at twice, and whoever listens compares everything now and then as well.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import time
from collections.abc import Callable
from contextlib import aclosing

from sbxguest.tree.entry import BadRecord, check_path
from sbxtui.core.text import harmless_line

# Events that come within a few milliseconds belong to one save. It polls as often, also at rest.
_STEP_MS = 10
_DEBOUNCE_MS = 50
_QUIET_MS = 500
# What is written into a new folder before the watcher has reached it raises no event.
_AGAIN_S = 0.4
_RESTART_FIRST_S = 1.0
# The watcher goes on without a word when there are no more watches to be had.
_PROBE_EVERY_S = 5.0
_NO_WATCHES = "too many folders to watch: raise fs.inotify.max_user_watches (sysctl); until then it looks regularly"
_libc = ctypes.CDLL(None, use_errno=True)
_RESTART_MAX_S = 30.0

_MODIFY = 0x2

EVERYTHING = b""


class FolderWatch:
    """Watches a folder until it is cancelled, whatever happens to the watcher.

    Args:
        root: The folder, without links in its path.
        on_hint: Called with paths relative to it at and below which to look; `EVERYTHING` is all of it.
        on_trouble: Called with why there are no hints just now, and with nothing when there are again.
    """

    def __init__(
        self, root: bytes, on_hint: Callable[[set[bytes]], None], on_trouble: Callable[[str], None] = lambda words: None
    ) -> None:
        self._root = root
        self._on_hint = on_hint
        self._on_trouble = on_trouble
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Watch; ends by being cancelled only."""
        pause_s = _RESTART_FIRST_S
        try:
            while True:
                started_s = time.monotonic()
                self._on_trouble(await self._watch())
                if time.monotonic() - started_s > _RESTART_MAX_S:
                    pause_s = _RESTART_FIRST_S
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, _RESTART_MAX_S)
        finally:
            for task in self._tasks:
                task.cancel()

    async def _watch(self) -> str:
        """Pass hints on until the watcher dies; returns of what."""
        from watchfiles import awatch

        changes = awatch(
            os.fsdecode(self._root),
            watch_filter=None,
            step=_STEP_MS,
            debounce=_DEBOUNCE_MS,
            rust_timeout=_QUIET_MS,
            yield_on_timeout=True,
            ignore_permission_denied=True,
        )
        is_watching = is_short = False
        probed_s = float("-inf")
        try:
            async with aclosing(changes):
                async for some in changes:
                    if not is_watching:
                        # Nobody knows what happened before it watched.
                        is_watching = True
                        self._on_trouble("")
                        self._on_hint({EVERYTHING})
                    if time.monotonic() - probed_s > _PROBE_EVERY_S:
                        probed_s = time.monotonic()
                        was_short, is_short = is_short, _is_out_of_watches(self._root)
                        if is_short and not was_short:
                            self._on_trouble(_NO_WATCHES)
                        elif was_short and not is_short:
                            return "there are watches again, so the watcher is started again"
                    if some:
                        self._pass_on({self._below(path) for _, path in some})
        except OSError as exc:
            return _words(exc)
        except (RuntimeError, UnicodeError, ExceptionGroup) as exc:
            # A name that is no text, for one, or the watcher's own faults.
            return f"the watcher failed and is started again: {harmless_line(str(exc))}"
        return "the watcher ended and is started again"

    def _pass_on(self, paths: set[bytes]) -> None:
        self._on_hint(paths)
        task = asyncio.create_task(self._again(paths))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _again(self, paths: set[bytes]) -> None:
        await asyncio.sleep(_AGAIN_S)
        self._on_hint(paths)

    def _below(self, path: str) -> bytes:
        """A path as it is told; one the watcher should not speak of means everything."""
        raw = os.fsencode(path)
        if not raw.startswith(self._root + b"/"):
            return EVERYTHING
        below = raw[len(self._root) + 1 :]
        try:
            check_path(below)
        except BadRecord:
            return EVERYTHING
        return below


def _is_out_of_watches(root: bytes) -> bool:
    """Whether one more watch is refused, so that some folders may be without."""
    if not hasattr(_libc, "inotify_init1"):
        return False
    fd = _libc.inotify_init1(os.O_CLOEXEC)
    if fd < 0:
        return False
    try:
        return bool(_libc.inotify_add_watch(fd, root, _MODIFY) < 0 and ctypes.get_errno() == errno.ENOSPC)
    finally:
        os.close(fd)


def _words(exc: OSError) -> str:
    text = str(exc)
    if "limit" in text.lower() or "no space left" in text.lower() or exc.errno == errno.ENOSPC:
        return _NO_WATCHES
    return f"the folder cannot be watched: {exc.strerror or text}"
