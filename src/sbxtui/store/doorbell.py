"""Doorbells: after a commit, every process that looks at the store is woken, without being told why.

A bell is a unix datagram socket in the home's bells folder. What changed is read from the store, not from the datagram,
so a lost ring costs at most one poll of `PRAGMA data_version`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import sqlite3
import threading
import time
from pathlib import Path
from types import TracebackType

from sbxtui.core.errors import SbxError
from sbxtui.home import Home, private_dir
from sbxtui.store.opening import inode_of

log = logging.getLogger(__name__)

LOOKING_POLL_S = 0.25
IDLE_POLL_S = 1.0
# Two writes so close together may have one and the same time, as coarsely as systems tell it.
_SAME_TIME_NS = 50_000_000


def ring(home: Home) -> int:
    """Wake every listener of this home and remove the bells of dead ones; never blocks, never raises.

    Returns:
        How many listeners were reached; one that has unread rings already counts.
    """
    try:
        bells = [Path(entry.path) for entry in os.scandir(home.bells_dir)]
    except OSError:
        return 0
    if not bells:
        return 0
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ringer:
            ringer.setblocking(False)
            return sum(_ring_one(ringer, bell) for bell in bells)
    except OSError as exc:
        log.debug("no doorbell was rung: %s", exc)
        return 0


def _ring_one(ringer: socket.socket, bell: Path) -> bool:
    try:
        ringer.sendto(b"", os.fspath(bell))
    except BlockingIOError:
        # Its queue is full of rings nobody read yet: it will look anyway.
        return True
    except ConnectionRefusedError:
        # Nobody holds the socket any more; names are random, so no new listener can have this one.
        with contextlib.suppress(OSError):
            bell.unlink()
        return False
    except OSError:
        return False
    return True


class Listener:
    """Wakes when the store changed: an async context manager to iterate over, or to `wait` on.

    Wake-ups carry nothing and are coalesced: any number of commits between two looks is one wake-up.

    Args:
        home: Whose store to listen to.
        poll_s: How often to look at the store's files when no bell rings; `LOOKING_POLL_S` while a person looks.
    """

    def __init__(self, home: Home, *, poll_s: float = IDLE_POLL_S) -> None:
        self._home = home
        self._poll_s = poll_s
        self._rung = asyncio.Event()
        self._is_waking = False
        self._socket: socket.socket | None = None
        self._bell: Path | None = None
        self._connection: sqlite3.Connection | None = None
        # A cancelled wait leaves its thread inside SQLite, which does not survive a close under it.
        self._reading = threading.Lock()
        self._is_closed = False
        self._version = -1
        self._inode = (0, 0)
        self._files = (home.store_file, Path(f"{home.store_file}-wal"))
        self._stamps: tuple[tuple[int, ...], ...] | None = None

    async def __aenter__(self) -> Listener:
        """Start listening: every commit from here on wakes the next `wait`."""
        self._hang_bell()
        await self._has_changed()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None
        if self._bell is not None:
            self._bell.unlink(missing_ok=True)
        self._is_closed = True
        self._close_if_idle()

    def __aiter__(self) -> Listener:
        return self

    async def __anext__(self) -> None:
        await self.wait()

    @property
    def may_have_news(self) -> bool:
        """Whether a commit, in whichever process, may have ended of which no `wait` has told yet."""
        if self._socket is None or self._is_waking or self._rung.is_set():
            return True
        with contextlib.suppress(BlockingIOError):
            return bool(self._socket.recv(1, socket.MSG_PEEK))
        return False

    async def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until something was committed since the last wake-up.

        Returns:
            True when woken, False when `timeout_s` ran out first.
        """
        try:
            async with asyncio.timeout(timeout_s):
                await self._woken()
        except TimeoutError:
            return False
        return True

    async def _woken(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._poll_s):
                    await self._rung.wait()
            # Cleared before the version is read, so that a commit in between rings for the next wait.
            was_rung = self._rung.is_set()
            self._rung.clear()
            self._is_waking = was_rung
            has_changed = await self._has_changed()
            self._is_waking = False
            if was_rung or has_changed:
                return

    async def _has_changed(self) -> bool:
        stamps = self._stamps_now()
        if stamps is not None and stamps == self._stamps:
            return False
        version = await asyncio.to_thread(self._read_version)
        if version is None:
            version, stamps = self._version, None
        # Not before: a wait that is cancelled has told of nothing.
        has_changed, self._stamps, self._version = version != self._version, stamps, version
        return has_changed

    def _stamps_now(self) -> tuple[tuple[int, ...], ...] | None:
        """What every commit changes of the store's files; None while a second one could leave it as it is.

        It is compared many times a second: SQLite, in a thread, takes ten times as long to say that nothing is new.
        """
        stamps = tuple(map(_stamp, self._files))
        is_young = any(time.time_ns() - modified_ns < _SAME_TIME_NS for modified_ns, *_ in stamps)
        return None if is_young else stamps

    def _hang_bell(self) -> None:
        bell = self._home.bells_dir / f"{os.getpid()}-{os.urandom(4).hex()}"
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        listening.setblocking(False)
        try:
            private_dir(self._home.socket_dir)
            private_dir(self._home.bells_dir)
            listening.bind(os.fspath(bell))
        except (OSError, SbxError) as exc:
            log.warning("no doorbell in %s (%s); polling the store instead", self._home.bells_dir, exc)
            listening.close()
            return
        self._socket, self._bell = listening, bell
        asyncio.get_running_loop().add_reader(listening, self._drain)

    def _drain(self) -> None:
        assert self._socket is not None
        with contextlib.suppress(BlockingIOError):
            while True:
                self._socket.recv(1)
        self._rung.set()

    def _close_if_idle(self) -> None:
        """Close the connection, unless a thread reads: that one closes it when it is done."""
        if self._reading.acquire(blocking=False):
            try:
                if self._connection is not None:
                    self._connection.close()
                    self._connection = None
            finally:
                self._reading.release()

    def _read_version(self) -> int | None:
        with self._reading:
            version = self._version if self._is_closed else self._ask_version()
        if self._is_closed:
            self._close_if_idle()
        return version

    def _ask_version(self) -> int | None:
        """The store's `data_version`, -1 while there is none, None while it does not tell.

        A file put in its place counts as a change.
        """
        try:
            inode = inode_of(self._home.store_file)
            if inode != self._inode:
                self._inode = inode
                if self._connection is not None:
                    self._connection.close()
                    self._connection = None
                self._version = -2
            if inode == (0, 0):
                return -1
            if self._connection is None:
                self._connection = sqlite3.connect(
                    self._home.store_file, timeout=0.2, isolation_level=None, check_same_thread=False
                )
            return int(self._connection.execute("PRAGMA data_version").fetchone()[0])
        except sqlite3.Error as exc:
            log.debug("cannot poll the store: %s", exc)
            return None


def _stamp(file: Path) -> tuple[int, ...]:
    """What is another after a file was written, the time of that first."""
    try:
        facts = file.stat()
    except OSError:
        return (0,)
    return (facts.st_mtime_ns, facts.st_size, facts.st_ino, facts.st_dev)
