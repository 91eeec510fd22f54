"""What changes in a tree, for whoever waits for it: told by the kernel where it can, else found by looking again."""

from __future__ import annotations

import asyncio
import hashlib
import os
import select
import threading
import time
from collections.abc import Callable, Iterator
from typing import Protocol

from sbxguest.feedlog import Dirty, DirtyLog
from sbxguest.filepool import in_thread
from sbxguest.tree.entry import Note, Record, encode_record
from sbxguest.tree.report import TreeError

# Looking again costs what there is to see: it may take one part in so many of the time.
_LOOK_SHARE = 50
_LOOK_MIN_S = 2.0
_GATHER_MS = 5


class Source(Protocol):
    """Where the kernel's notes come from."""

    fd: int
    kind: str

    def read(self) -> Iterator[bytes | None]:
        """Paths that changed; None where some were lost."""

    def refresh(self) -> None:
        """Watch folders that are not left out any more."""

    def close(self) -> None:
        """End the notes."""


class Feed(Protocol):
    """What changes in a tree."""

    kind: str

    async def cursor(self) -> str:
        """Behind all that has changed by now; also a barrier: what was written before this was asked is before it."""
        ...

    async def changes(self, cursor: str, wait_s: float) -> Dirty:
        """What changed since a cursor; waits for something."""
        ...

    def refresh(self) -> None:
        """Other rules hold for what is left out."""

    def close(self) -> None:
        """End it."""


class KernelFeed:
    """A feed of the kernel's notes, read by a thread of its own that sleeps while nothing changes.

    Args:
        source: Of the notes; the feed closes it.
        is_wanted: Asked of every change, whether anybody may ask for it.
        is_news: Asked, in a thread, whether a change of a path is one its reader does not know of already.
    """

    def __init__(self, source: Source, is_wanted: Callable[[bytes], bool], is_news: Callable[[bytes], bool]) -> None:
        self.kind = source.kind
        self._source = source
        self._is_wanted = is_wanted
        self._is_news = is_news
        self._must_refresh = False
        self._loop = asyncio.get_running_loop()
        self._log = DirtyLog(self._notice)
        self._changed = asyncio.Event()
        self._has_waiters = False
        self._wake_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._lock = threading.Lock()
        self._barriers: list[asyncio.Future[None]] = []
        self._is_closed = False
        self.is_broken = False
        threading.Thread(target=self._follow, name="feed", daemon=True).start()

    def refresh(self) -> None:
        """Have the next barrier watch folders that were left out before."""
        self._must_refresh = True

    async def cursor(self) -> str:
        """See `Feed`: the kernel queues a change as it is made, so what is queued now is all there was."""
        passed: asyncio.Future[None] = self._loop.create_future()
        with self._lock:
            if not self._is_closed:
                self._barriers.append(passed)
                os.eventfd_write(self._wake_fd, 1)
            else:
                passed.set_result(None)
        await passed
        return self._log.cursor

    async def changes(self, cursor: str, wait_s: float) -> Dirty:
        """See `Feed`."""
        deadline_s = self._loop.time() + wait_s
        while True:
            self._changed.clear()
            self._has_waiters = True
            dirty = self._log.since(cursor)
            news = await in_thread(self._news, dirty.paths) if dirty.paths else ()
            left_s = deadline_s - self._loop.time()
            if dirty.must_rescan or news or left_s <= 0 or self._is_closed:
                return Dirty(dirty.cursor, news, dirty.must_rescan)
            cursor = dirty.cursor
            # Another waiter may have taken note of what came meanwhile.
            self._has_waiters = True
            if self._log.cursor != cursor:
                continue
            try:
                async with asyncio.timeout(left_s):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def close(self) -> None:
        """See `Feed`."""
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                os.eventfd_write(self._wake_fd, 1)

    def _news(self, paths: tuple[bytes, ...]) -> tuple[bytes, ...]:
        return tuple(path for path in paths if self._is_news(path))

    def _notice(self) -> None:
        if self._has_waiters:
            self._has_waiters = False
            self._tell(self._changed.set)

    def _tell(self, call: Callable[[], object]) -> None:
        """Have the event loop call something; when it has ended, nobody waits."""
        try:
            self._loop.call_soon_threadsafe(call)
        except RuntimeError:
            return

    def _follow(self) -> None:
        poll = select.poll()
        poll.register(self._source.fd, select.POLLIN)
        poll.register(self._wake_fd, select.POLLIN)
        woken = select.poll()
        woken.register(self._wake_fd, select.POLLIN)
        asked: list[asyncio.Future[None]] = []
        try:
            while not self._is_closed:
                poll.poll()
                # Notes come in crowds, each of which costs a look or two; only a barrier cannot wait for more.
                woken.poll(_GATHER_MS)
                with self._lock:
                    asked, self._barriers = self._barriers, []
                    self._drain_wakes()
                self._read()
                self._pass(asked)
        except (OSError, TreeError):
            return
        finally:
            self._end(asked)

    def _read(self) -> None:
        if self._must_refresh:
            self._must_refresh = False
            self._source.refresh()
        for path in self._source.read():
            if path is None:
                self._log.lose()
            elif self._is_wanted(path):
                self._log.add(path)

    def _drain_wakes(self) -> None:
        try:
            os.eventfd_read(self._wake_fd)
        except BlockingIOError:
            return

    def _pass(self, asked: list[asyncio.Future[None]]) -> None:
        for future in asked:
            self._tell(lambda future=future: future.done() or future.set_result(None))  # type: ignore[misc]

    def _end(self, asked: list[asyncio.Future[None]]) -> None:
        """Let everybody go; nobody who comes later waits for a thread that is gone, whatever ended it."""
        with self._lock:
            # Not asked to: what changed since is unknown, and another kind of feed has to take over.
            self.is_broken = not self._is_closed
            self._is_closed = True
            late, self._barriers = self._barriers, []
            self._source.close()
            os.close(self._wake_fd)
        if self.is_broken:
            self._log.lose()
        self._pass([*asked, *late])
        self._tell(self._changed.set)


class ScanFeed:
    """A feed where the kernel tells nothing: the tree is looked at again and again while somebody waits.

    Args:
        look: Lists the tree without contents, in a thread.
    """

    kind = "scan"

    def __init__(self, look: Callable[[], Iterator[Record]]) -> None:
        self._look = look

    async def cursor(self) -> str:
        """See `Feed`."""
        return (await in_thread(self._fingerprint))[0]

    async def changes(self, cursor: str, wait_s: float) -> Dirty:
        """See `Feed`; what changed is never known, only that something did."""
        deadline_s = time.monotonic() + wait_s
        while True:
            now, took_s = await in_thread(self._fingerprint)
            pause_s = max(_LOOK_MIN_S, took_s * _LOOK_SHARE)
            left_s = deadline_s - time.monotonic()
            if now != cursor or left_s <= 0:
                return Dirty(now, (), must_rescan=now != cursor)
            await asyncio.sleep(min(pause_s, left_s))

    def refresh(self) -> None:
        """See `Feed`: every look is at everything."""

    def close(self) -> None:
        """See `Feed`."""

    def _fingerprint(self) -> tuple[str, float]:
        started_s = time.monotonic()
        digest = hashlib.sha256()
        for record in self._look():
            # A name that went while it was looked at is no state of the tree.
            if not (isinstance(record, Note) and record.code == "vanished"):
                digest.update(encode_record(record))
        return f"s-{digest.hexdigest()[:32]}", time.monotonic() - started_s
