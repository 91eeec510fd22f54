"""What an empty folder of a sandbox gets: on its way while this machine's folder is still looked at.

It is one batch, and nothing of a batch is done before its end is there. That is sent when all has been looked at,
nothing halts, and the plan is to do just this. Files are read once then, and the sandbox writes while others are read.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager

from sbxguest.tree import Result, State
from sbxguest.tree.frames import PACKED_BYTES, BatchWriter
from sbxguest.tree.ops import encode_new
from sbxtui.guest.tree import GuestTree
from sbxtui.guest.treewire import TreeHello
from sbxtui.services.sync.largestart import LargeStart
from sbxtui.services.sync.made import Made
from sbxtui.services.sync.model import Change, Path, Side

# What goes in this batch, if the guest takes as much, and what of it waits here at most; the rest comes in batches of
# its own.
_MAX_OPS = 30_000
_MAX_BYTES = 128 * 1024 * 1024
_WAITING_BYTES = 24 * 1024 * 1024
_PIECE_BYTES = 256 * 1024
# So many results are worth writing down, while others are on their way.
_RESULTS = 2_000
# For so long after it was found empty, the sandbox's folder is taken to be: what is made there expects nothing.
_FRESH_S = 1.0


class HeadStart:
    """A batch that is filled by the thread that looks at this machine's folder. See `head_start`.

    Once something had to be left out, so is all that comes after it: what is in a folder never comes without it. The
    thread does all there is to do for a file: two that take turns at it would wait for each other at each system call.

    Attributes:
        hello: What the sandbox said of its folder when that was empty.
        large: The same for large files, each by itself.
        size_bytes: Of all contents it has.
    """

    def __init__(self, guest: GuestTree, hello: TreeHello, root: str) -> None:
        self.hello = hello
        self.large = LargeStart(guest, root, is_wanted=hello.names_contents)
        self._guest = guest
        self._loop = asyncio.get_running_loop()
        self._found_s = self._loop.time()
        self._bell = asyncio.Event()
        self._writer = BatchWriter()
        self._gathered: list[bytes] = []
        self._gathered_bytes = 0
        self._waiting: deque[bytes] = deque()
        self._states: dict[Path, State] = {}
        self._changes: list[Change] = []
        self.size_bytes = 0
        self._max_ops = min(_MAX_OPS, hello.max_operations)
        self._is_full = self._is_whole = False
        self._sending: asyncio.Task[None] | None = None
        self._results: asyncio.Queue[list[Result]] = asyncio.Queue()

    @property
    def is_fresh(self) -> bool:
        """Whether the sandbox's folder was found empty just now."""
        return self._loop.time() - self._found_s < _FRESH_S

    def take(self, path: Path, state: State, content: bytes) -> None:
        """What was found at a path; `content` is all that is in it, if it is a file. From any thread."""
        size_bytes = len(content)
        if self._is_full or size_bytes > PACKED_BYTES:
            return
        if len(self._states) >= self._max_ops or self.size_bytes + size_bytes > _MAX_BYTES:
            self._is_full = True
            return
        self.size_bytes += size_bytes
        self._states[path] = state
        record = encode_new(path, state, size_bytes)
        self._gathered += self._writer.parts(record, content)
        self._gathered_bytes += len(record) + size_bytes
        if self._gathered_bytes >= _PIECE_BYTES:
            self._pass_on()
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._ring)

    def _ring(self) -> None:
        """There is more to send. What comes to less than one piece is not worth a beginning."""
        if self._sending is None:
            self._sending = asyncio.create_task(self._send())
        self._bell.set()

    async def _send(self) -> None:
        sending = self._guest.send_batch(secrets.token_hex(16), self._pieces(), lambda: len(self._states))
        async with aclosing(sending) as results:
            async for some in results:
                self._results.put_nowait(some)

    def _pass_on(self) -> None:
        self._waiting.append(b"".join(self._gathered))
        self._gathered.clear()
        self._gathered_bytes = 0
        # Counted, not kept: two threads that each add to one number lose some of it.
        waiting_bytes = sum(map(len, tuple(self._waiting)))
        is_over = self._sending is not None and self._sending.done()
        self._is_full = self._is_full or is_over or waiting_bytes > _WAITING_BYTES

    async def _pieces(self) -> AsyncGenerator[bytes, None]:
        while True:
            self._bell.clear()
            while self._waiting:
                yield self._waiting.popleft()
            if self._is_whole:
                yield self._writer.end()
                return
            await self._bell.wait()

    async def finish(self, changes: Sequence[Change]) -> list[Change]:
        """Have it made, if that is what was decided on; `made` tells what became of it. Returns the rest.

        Args:
            changes: What is to be made in the sandbox, in order.
        """
        planned, rest = self._sorted_out(changes)
        if self._sending is None or self._sending.done() or len(planned) != len(self._states):
            await self._drop_batch()
            return list(changes)
        self._pass_on()
        self._is_whole = True
        self._bell.set()
        self._changes = [planned[path] for path in self._states]
        return rest

    def _sorted_out(self, changes: Sequence[Change]) -> tuple[dict[Path, Change], list[Change]]:
        """Those that make just what is on its way, and those of which nothing is on its way."""
        state_at, side = self._states.get, Side.GUEST
        planned: dict[Path, Change] = {}
        rest: list[Change] = []
        for one in changes:
            state = state_at(one.path)
            if state is None:
                rest.append(one)
            elif one.side is side and one.expect is None and state.is_exactly(one.entry):
                planned[one.path] = one
        return planned, rest

    async def made(self) -> AsyncGenerator[list[Made], None]:
        """What became of each change, some at a time, while others are made.

        Raises:
            SbxError: The sandbox does not answer. What was yielded is done; the rest may be.
        """
        if self._sending is None or not self._changes:
            return
        changes = self._changes
        untold = set(range(len(changes)))
        async for some in self._told(self._sending):
            # A guest may say the same twice.
            news = {one.seq: one for one in some if one.seq in untold}
            untold -= news.keys()
            yield [Made(changes[seq], one) for seq, one in news.items()]
        yield [Made(changes[number], None) for number in sorted(untold)]

    async def _told(self, sending: asyncio.Task[None]) -> AsyncGenerator[list[Result], None]:
        """The results, as many as are worth a while at once."""
        sending.add_done_callback(lambda _: self._results.put_nowait([]))
        held: list[Result] = []
        while not (sending.done() and self._results.empty()):
            held += await self._results.get()
            if len(held) >= _RESULTS:
                yield held
                held = []
        if held:
            yield held
        await sending

    async def arrived(self) -> int:
        """How many bytes of content are there, when all that was sent is."""
        return (self.size_bytes if self._is_whole else 0) + await self.large.settle()

    async def drop(self) -> None:
        """Have nothing of it made. Safe to repeat."""
        await self.large.drop()
        await self._drop_batch()

    async def _drop_batch(self) -> None:
        self._is_full = True
        if self._sending is None:
            return
        self._sending.cancel()
        await asyncio.wait((self._sending,))
        if not self._sending.cancelled():
            # A batch that was cut before its end did nothing, whatever it says of why.
            self._sending.exception()


@asynccontextmanager
async def head_start(guest: GuestTree, root: str, *, is_wanted: bool) -> AsyncIterator[HeadStart | None]:
    """A head start for a folder of a sandbox, if that is empty; what was not finished in the block is dropped.

    Args:
        guest: That folder.
        root: What tells this machine's folder from another one.
        is_wanted: Whether there is to be one.

    Raises:
        SbxError: The sandbox does not answer, or has no such folder.
    """
    if not is_wanted:
        yield None
        return
    hello = await guest.hello()
    found = await guest.scan(has_digests=False, is_deep=False, has_cursor=False)
    if found.records:
        yield None
        return
    started = HeadStart(guest, hello, root)
    try:
        yield started
    finally:
        await started.drop()
