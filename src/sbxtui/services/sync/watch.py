"""Hints that something in a folder of this machine may have changed.

Hints only: whoever watches may lose some, or die. So whoever listens compares everything now and then as well.
"""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import Callable
from contextlib import aclosing

from sbxguest.tree import TreeError
from sbxguest.tree.inotify import IS_HERE
from sbxtui.core.text import harmless_line
from sbxtui.services.sync.librarywatch import EVERYTHING as EVERYTHING
from sbxtui.services.sync.librarywatch import library_hints

# What is written into a new folder before the library has reached it raises no event.
_AGAIN_S = 0.4
_RESTART_FIRST_S = 1.0
_RESTART_MAX_S = 30.0
_NO_WATCHES = "too many folders to watch: raise fs.inotify.max_user_watches (sysctl); until then it looks regularly"


class FolderWatch:
    """Watches a folder until it is cancelled, whatever happens to the watcher.

    Args:
        root: The folder, without links in its path.
        on_hint: Called with paths relative to it at and below which to look; `EVERYTHING` is all of it.
        on_trouble: Called with why there are no hints just now, and with nothing when there are again.
        on_loss: Called when hints were lost, before everything is hinted at.
        is_known: Whether something was at a path before, so that a new name there cannot be a passing one.
        is_kernel_asked: Whether the kernel's own notes are read; else a library does it.
    """

    def __init__(
        self,
        root: bytes,
        on_hint: Callable[[set[bytes]], None],
        on_trouble: Callable[[str], None] = lambda words: None,
        on_loss: Callable[[], None] = lambda: None,
        *,
        is_known: Callable[[bytes], bool] = lambda path: False,
        is_kernel_asked: bool = IS_HERE,
    ) -> None:
        self._root = root
        self._on_hint = on_hint
        self._on_trouble = on_trouble
        self._on_loss = on_loss
        self._is_known = is_known
        self._is_kernel_asked = is_kernel_asked
        self._is_watching = False
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Watch; ends by being cancelled only."""
        pause_s = _RESTART_FIRST_S
        try:
            while True:
                started_s = time.monotonic()
                self._is_watching = False
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
        try:
            if self._is_kernel_asked:
                from sbxtui.services.sync.kernelwatch import KernelWatch

                await KernelWatch(self._root, self._hear, self._is_known).run()
                return "the folder went away; what is at its path is watched anew"
            async with aclosing(library_hints(self._root)) as hints:
                async for some in hints:
                    self._hear_twice(some)
        except OSError as exc:
            return _words(exc)
        except TreeError as exc:
            return f"the folder cannot be watched: {harmless_line(exc.message)}"
        except (RuntimeError, UnicodeError, ExceptionGroup) as exc:
            # A name that is no text, for one, or the library's own faults.
            return f"the watcher failed and is started again: {harmless_line(str(exc))}"
        return "the watcher ended and is started again"

    def _hear(self, paths: set[bytes] | None) -> None:
        if not self._is_watching:
            # Nobody knows what happened before it watched.
            self._is_watching = True
            self._on_trouble("")
            self._on_hint({EVERYTHING})
        if paths is None:
            self._on_loss()
            self._on_hint({EVERYTHING})
        elif paths:
            self._on_hint(paths)

    def _hear_twice(self, paths: set[bytes]) -> None:
        self._hear(paths)
        if paths:
            task = asyncio.create_task(self._again(paths))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _again(self, paths: set[bytes]) -> None:
        await asyncio.sleep(_AGAIN_S)
        self._on_hint(paths)


def _words(exc: OSError) -> str:
    text = str(exc)
    if "limit" in text.lower() or "no space left" in text.lower() or exc.errno == errno.ENOSPC:
        return _NO_WATCHES
    return f"the folder cannot be watched: {exc.strerror or text}"
