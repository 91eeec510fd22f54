"""What an empty folder of a sandbox gets of large files: on its way while they are read for their digests.

Nobody knows a file's digest before all of it is read, so that it is sent under a name made up of what the disk says of
it; the guest names it by its digest when it is there. What was cut off is gone on with under the same name, in another
process, too, and what is there whole is not sent again. Whatever changed meanwhile has another digest, which nobody
asks for.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable

from sbxguest.tree import State
from sbxguest.tree.entry import Stamp, new_digest
from sbxguest.tree.root import stamp_of
from sbxguest.tree.trash import bytes_on_disk
from sbxtui.core.errors import SbxError
from sbxtui.guest.tree import GuestTree
from sbxtui.services.sync.model import Path

_LARGE_BYTES = 8 * 1024 * 1024
# So much is sent before anybody could be asked whether it is wanted.
_MAX_BYTES = 1024 * 1024 * 1024
# Pieces of 1 MiB that were read and not sent. Where not even one goes out for so long, looking on comes first.
_WAITING_PIECES = 8
_PATIENCE_S = 0.5


def begun_name(root: str, path: Path, state: State) -> bytes:
    """The name under which a file may have begun to be sent; empty for one that is not large, or was not read."""
    stamp = state.stamp
    return b"" if stamp is None or stamp.size_bytes < _LARGE_BYTES else _name(root, path, stamp)


def _name(root: str, path: Path, stamp: Stamp) -> bytes:
    """As long as a digest, as which it passes."""
    figures = (stamp.size_bytes, stamp.mtime_ns, stamp.ctime_ns, stamp.inode)
    return new_digest(b"\0".join((b"begun", os.fsencode(root), path, repr(figures).encode()))).digest()


class LargeStart:
    """Uploads of large files, by the event loop it is made in, of what another thread reads.

    Args:
        guest: Where they go.
        root: What tells this machine's folder from another one.
        is_wanted: Whether there are to be any.
    """

    def __init__(self, guest: GuestTree, root: str, *, is_wanted: bool) -> None:
        self._guest = guest
        self._root = root
        self._loop = asyncio.get_running_loop()
        self._is_on = is_wanted
        self._left_bytes = _MAX_BYTES
        self._room = threading.Semaphore(_WAITING_PIECES)
        self._uploads: set[asyncio.Task[None]] = set()
        self._arrived_bytes = 0

    def taker_of(self, path: Path, found: os.stat_result) -> Reading | None:
        """What takes the pieces of a file that is going to be read; None if it gets no head start. From any thread."""
        size_bytes = found.st_size
        if not self._is_on or not _LARGE_BYTES <= size_bytes <= self._left_bytes:
            return None
        self._left_bytes -= size_bytes
        name = _name(self._root, path, stamp_of(found))
        reading = Reading(self._loop, self._room, self._stop)
        is_sparse = bytes_on_disk(found) < size_bytes
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._begin, name, reading, size_bytes, is_sparse)
        return reading

    def _stop(self) -> None:
        """The way is slower than reading by far: no other file is worth waiting for."""
        self._is_on = False

    def _begin(self, name: bytes, reading: Reading, size_bytes: int, is_sparse: bool) -> None:
        if not self._is_on:
            reading.let_go()
            return
        self._uploads.add(asyncio.create_task(self._upload(name, reading, size_bytes, is_sparse)))

    async def _upload(self, name: bytes, reading: Reading, size_bytes: int, is_sparse: bool) -> None:
        try:
            have = await self._guest.blob(name)
            if have.is_complete:
                # By a process that was killed. Whether it is still that content is found out by its digest.
                return
            pieces = reading.pieces(have.offset)
            done = await self._guest.upload_blob(
                name, pieces, offset=have.offset, size_bytes=size_bytes, is_sparse=is_sparse, is_provisional=True
            )
            if done.is_complete:
                self._arrived_bytes += max(0, size_bytes - have.offset)
            elif reading.is_other:
                await self._guest.drop_blob(name, done.offset)
        except SbxError:
            # Whoever needs the content sends it, and says what is in the way.
            self._stop()
        finally:
            reading.let_go()

    async def settle(self) -> int:
        """Wait until all that is on its way is there; returns how many bytes arrived."""
        await asyncio.gather(*self._uploads)
        self._uploads.clear()
        arrived_bytes, self._arrived_bytes = self._arrived_bytes, 0
        return arrived_bytes

    async def drop(self) -> None:
        """Send no more; what arrived is kept there for a while. Safe to repeat."""
        self._stop()
        for one in self._uploads:
            one.cancel()
        await asyncio.gather(*self._uploads, return_exceptions=True)
        self._uploads.clear()


class Reading:
    """The pieces of one file, from the thread that reads it to the loop that sends it. See `sbxguest`'s `Taker`.

    Attributes:
        is_other: The file was written while it was read: what was sent is of no use.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, room: threading.Semaphore, on_slow: Callable[[], None]) -> None:
        self.is_other = False
        self._loop = loop
        self._room = room
        self._on_slow = on_slow
        self._waiting: deque[bytes] = deque()
        self._held = b""
        self._bell = asyncio.Event()
        self._has_ended = False

    def take(self, piece: bytes) -> None:
        """The next piece; may wait until another one was sent."""
        self._pass_on()
        self._held = piece

    def end(self, *, is_other: bool) -> None:
        """There are no more."""
        self.is_other = is_other
        if is_other:
            self.let_go()
        else:
            self._pass_on()
        self._end()

    def let_go(self) -> None:
        """Nobody sends any more of it."""
        self._has_ended = True
        with contextlib.suppress(IndexError):
            while True:
                self._waiting.popleft()
                self._room.release()

    def _pass_on(self) -> None:
        """The last piece goes when nobody wrote until the end: before, there is no whole content."""
        piece, self._held = self._held, b""
        if self._has_ended or not piece:
            return
        if not self._room.acquire(timeout=_PATIENCE_S):
            self._on_slow()
            self._end()
            return
        self._waiting.append(piece)
        self._ring()

    async def pieces(self, start: int) -> AsyncGenerator[bytes, None]:
        """All that is taken, from an offset on."""
        while True:
            self._bell.clear()
            has_ended = self._has_ended
            while (piece := self._next()) is not None:
                if start < len(piece):
                    yield piece[start:] if start else piece
                start = max(0, start - len(piece))
                self._room.release()
            if has_ended:
                return
            await self._bell.wait()

    def _next(self) -> bytes | None:
        # Another thread may let go of them meanwhile.
        with contextlib.suppress(IndexError):
            return self._waiting.popleft()
        return None

    def _end(self) -> None:
        self._has_ended = True
        self._ring()

    def _ring(self) -> None:
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._bell.set)
