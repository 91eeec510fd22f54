"""What an empty folder of a sandbox gets: on its way while this machine's folder is still looked at.

It is one batch, and nothing of a batch is done before its end is there. That is sent when all has been looked at,
nothing halts, and the plan is to do just this. Files are read once then, and the sandbox writes while others are read.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager

from sbxguest.tree import Note, OpKind, Record, Result, State
from sbxguest.tree.frames import PACKED_BYTES, BatchWriter
from sbxguest.tree.ops import encode_new
from sbxtui.guest.tree import GuestTree
from sbxtui.services.sync.made import Made
from sbxtui.services.sync.model import Change, Path, Side

# What a guest takes in one batch, and what of it waits here at most; the rest comes in batches of its own.
_MAX_OPS = 20_000
_MAX_BYTES = 128 * 1024 * 1024
_WAITING_BYTES = 24 * 1024 * 1024
_PIECE_BYTES = 256 * 1024
_PUT = OpKind.PUT


class HeadStart:
    """A batch that is filled by the thread that looks at this machine's folder. See `head_start`.

    Once something had to be left out, so is all that comes after it: what is in a folder never comes without it. The
    thread does all there is to do for a file: two that take turns at it would wait for each other at each system call.

    Attributes:
        size_bytes: Of all contents it has.
    """

    def __init__(self, guest: GuestTree) -> None:
        self._guest = guest
        self._loop = asyncio.get_running_loop()
        self._bell = asyncio.Event()
        self._writer = BatchWriter()
        self._gathered = bytearray()
        self._waiting: deque[bytes] = deque()
        self._states: dict[Path, State] = {}
        self.size_bytes = 0
        self._is_full = self._is_whole = False
        self._sending: asyncio.Task[list[Result]] | None = None

    def take_file(self, path: Path, state: State, content: bytes) -> None:
        """A file that was read; `content` is its beginning. From any thread, as is `take_others`."""
        size_bytes = state.size_bytes
        if size_bytes > PACKED_BYTES or size_bytes != len(content) or not self._has_room(size_bytes):
            return
        self.size_bytes += size_bytes
        goal = state.with_stamp(None)
        self._take(path, goal, encode_new(_PUT, path, goal, size_bytes), content)

    def take_others(self, records: Iterable[Record]) -> None:
        """The folders and links among what was found; what is in a folder comes later."""
        for record in records:
            if isinstance(record, Note) or record.state.is_file_with_digest or not self._has_room(0):
                continue
            goal = record.state.with_stamp(None)
            kind = OpKind.MKDIR if goal.is_dir else OpKind.LINK
            self._take(record.path, goal, encode_new(kind, record.path, goal))

    def _has_room(self, size_bytes: int) -> bool:
        self._is_full = (
            self._is_full
            or (self._sending is not None and self._sending.done())
            or len(self._states) >= _MAX_OPS
            or self.size_bytes + size_bytes > _MAX_BYTES
        )
        return not self._is_full

    def _take(self, path: Path, goal: State, op: bytes, content: bytes = b"") -> None:
        self._states[path] = goal
        self._gathered += self._writer.encoded(op, content)
        if len(self._gathered) >= _PIECE_BYTES:
            self._pass_on()
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._ring)

    def _ring(self) -> None:
        """There is more to send. What comes to less than one piece is not worth a beginning."""
        if self._sending is None:
            sending = self._guest.send_batch(secrets.token_hex(16), self._pieces(), lambda: len(self._states))
            self._sending = asyncio.create_task(sending)
        self._bell.set()

    def _pass_on(self) -> None:
        self._waiting.append(bytes(self._gathered))
        self._gathered.clear()
        # Counted, not kept: two threads that each add to one number lose some of it.
        self._is_full = self._is_full or sum(map(len, tuple(self._waiting))) > _WAITING_BYTES

    async def _pieces(self) -> AsyncGenerator[bytes, None]:
        while True:
            self._bell.clear()
            while self._waiting:
                yield self._waiting.popleft()
            if self._is_whole:
                yield self._writer.end()
                return
            await self._bell.wait()

    async def finish(self, changes: Sequence[Change]) -> tuple[list[Made], list[Change]]:
        """Have it made, if that is what was decided on; returns what became of these changes, and the rest.

        Args:
            changes: What is to be made in the sandbox, in order.

        Raises:
            SbxError: The sandbox does not answer. What of it is done is not known.
        """
        planned = [one for one in changes if one.path in self._states]
        if self._sending is None or self._sending.done() or not self._is_as_planned(planned):
            await self.drop()
            return [], list(changes)
        self._pass_on()
        self._is_whole = True
        self._bell.set()
        results = {one.seq: one for one in await self._sending}
        numbers = {path: number for number, path in enumerate(self._states)}
        rest = [one for one in changes if one.path not in self._states]
        return [Made(one, results.get(numbers[one.path])) for one in planned], rest

    def _is_as_planned(self, planned: Sequence[Change]) -> bool:
        return len(planned) == len(self._states) and all(
            one.side is Side.GUEST and one.expect is None and one.entry == self._states[one.path] for one in planned
        )

    async def drop(self) -> None:
        """Have nothing of it made. Safe to repeat."""
        self._is_full = True
        if self._sending is None:
            return
        self._sending.cancel()
        await asyncio.wait((self._sending,))
        if not self._sending.cancelled():
            # A batch that was cut before its end did nothing, whatever it says of why.
            self._sending.exception()


@asynccontextmanager
async def head_start(guest: GuestTree, *, is_wanted: bool) -> AsyncIterator[HeadStart | None]:
    """A head start for a folder of a sandbox, if that is empty; what was not finished in the block is dropped.

    Raises:
        SbxError: The sandbox does not answer, or has no such folder.
    """
    if not is_wanted:
        yield None
        return
    await guest.hello()
    found = await guest.scan(has_digests=False, is_deep=False, has_cursor=False)
    if found.records:
        yield None
        return
    started = HeadStart(guest)
    try:
        yield started
    finally:
        await started.drop()
