"""Steps of a plan as operations on the sandbox's folder, in batches of bounded size."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from itertools import islice

from sbxguest.tree import Op as WireOp
from sbxguest.tree import Outcome, Result, Source, State
from sbxguest.tree.frames import INLINE_BYTES, PACKED_BYTES
from sbxtui.core.errors import Conflict, QuotaExceeded, Throttled
from sbxtui.guest.tree import GuestTree
from sbxtui.guest.treebodies import Step
from sbxtui.guest.treewire import BlobState
from sbxtui.services.sync.ahead import one_ahead
from sbxtui.services.sync.folder import Folder, SmallFiles
from sbxtui.services.sync.largestart import begun_name
from sbxtui.services.sync.made import Made
from sbxtui.services.sync.model import Change, Op, Path, ancestors, parent_of

# A batch takes effect at its end, and one that is cut is sent again.
BATCH_OPS = 2_000
_BATCH_BYTES = 16 * 1024 * 1024
_CONTENT_MISSING = "content_missing"
_GONE_KEPT = 10_000
_MAKING = frozenset({Op.MKDIR, Op.PUT, Op.LINK, Op.CHMOD})


class Gone:
    """Contents that lately went from the sandbox's folder, and where they were: its trash has them still.

    Of what moves, the old name may be seen to be gone some time before the new one is there.
    """

    def __init__(self) -> None:
        self.places: dict[bytes, Path] = {}

    def note(self, changes: Iterable[Change]) -> None:
        """These were made."""
        self.places.update(_contents_that_go(changes))
        for content in tuple(islice(self.places, max(0, len(self.places) - _GONE_KEPT))):
            del self.places[content]


class Upload:
    """Carries changes over to the sandbox.

    Args:
        folder: Where contents come from.
        guest: Where they go.
        on_bytes: Called with how many bytes of content went out.
        gone: What need not be sent, for the sandbox has it.
    """

    def __init__(
        self, folder: Folder, guest: GuestTree, on_bytes: Callable[[int], None], gone: Mapping[bytes, Path]
    ) -> None:
        self._folder = folder
        self._guest = guest
        self._on_bytes = on_bytes
        self._gone = gone

    async def batches(
        self, changes: Sequence[Change], local: Mapping[Path, State], there: Mapping[Path, State]
    ) -> AsyncGenerator[list[Made], None]:
        """Make changes in their order; yields after each batch what became of its steps.

        Args:
            changes: Of the sandbox's side.
            local: What stands here, with stamps.
            there: What stands in the sandbox, with stamps: only while that is so, anything is changed.

        Raises:
            SbxError: The sandbox does not answer, or is another one. What was yielded is done; the rest may be.
        """
        moved = {**self._gone, **_contents_that_go(changes)}
        before, making, after = _parts(changes)
        for batch in in_batches(before, local):
            yield await self._make(batch, local, there, moved)
        requests = (partial(self._make_with, *lot, local, there, moved) for lot in _lots(making, local))
        async with aclosing(one_ahead(requests)) as answers:
            async for made in answers:
                yield made
        for batch in in_batches(after, local):
            yield await self._make(batch, local, there, moved)

    async def _make_with(
        self,
        folders: Sequence[Change],
        batch: Sequence[Change],
        local: Mapping[Path, State],
        there: Mapping[Path, State],
        moved: Mapping[bytes, Path],
        on_sent: Callable[[], None] = lambda: None,
    ) -> list[Made]:
        """Make a batch in folders that another one makes, too: it tells what becomes of them."""
        made = await self._make([*folders, *batch], local, there, moved, on_sent)
        known = set(map(id, folders))
        return [one for one in made if id(one.change) not in known]

    async def _make(
        self,
        batch: Sequence[Change],
        local: Mapping[Path, State],
        there: Mapping[Path, State],
        moved: Mapping[bytes, Path],
        on_sent: Callable[[], None] = lambda: None,
    ) -> list[Made]:
        made = await self._send(batch, local, there, moved, on_sent)
        missing = [one.change for one in made if one.result is not None and one.result.code == _CONTENT_MISSING]
        if not missing:
            return made
        again = {one.change.path: one for one in await self._send(missing, local, there, {})}
        return [again.get(one.change.path, one) if one.change in missing else one for one in made]

    async def _send(
        self,
        batch: Sequence[Change],
        local: Mapping[Path, State],
        there: Mapping[Path, State],
        moved: Mapping[bytes, Path],
        on_sent: Callable[[], None] = lambda: None,
    ) -> list[Made]:
        # Before the batch begins: it would be cut if nothing came of it for as long as a large file takes.
        refused = await self._send_ahead(batch, local, moved)
        steps: list[Change] = []
        skipped: list[Change] = []
        files = SmallFiles(self._folder)

        async def each() -> AsyncIterator[Step]:
            # A batch that is sent again after a cut begins anew.
            steps.clear()
            skipped.clear()
            for change in batch:
                if change.path in refused:
                    continue
                step = self._step(change, local, there, moved, files)
                if step is None:
                    skipped.append(change)
                else:
                    steps.append(change)
                    yield step
            on_sent()

        try:
            results = {one.seq: one for one in await self._guest.batch(secrets.token_hex(16), each())}
        finally:
            files.close()
        done = [Made(change, results.get(number)) for number, change in enumerate(steps)]
        left = [Made(change, refused[change.path]) for change in batch if change.path in refused]
        return [*done, *left, *(Made(change, None) for change in skipped)]

    def _step(
        self,
        change: Change,
        local: Mapping[Path, State],
        there: Mapping[Path, State],
        moved: Mapping[bytes, Path],
        files: SmallFiles,
    ) -> Step | None:
        """An operation with its content; None if the file is another one by now."""
        size_bytes = size_of(local.get(change.path))
        source = _source(change, size_bytes, moved)
        op = wire_op(change, there, size_bytes=size_bytes, source=source, known_path=_known_path(change, moved))
        if change.op is not Op.PUT or source is not Source.INLINE:
            return Step(op)
        if size_bytes > PACKED_BYTES:
            return Step(op, self._counted(self._folder.pieces(change.path, size_bytes)))
        # Whether it is the one that was meant is checked where it arrives.
        content = files.read(change.path, size_bytes)
        if content is None:
            return None
        self._on_bytes(size_bytes)
        return Step(op, content)

    async def _send_ahead(
        self, batch: Sequence[Change], local: Mapping[Path, State], moved: Mapping[bytes, Path]
    ) -> dict[Path, Result | None]:
        """Upload the large contents of a batch; returns those that did not arrive: None for files that changed."""
        refused: dict[Path, Result | None] = {}
        for change in batch:
            size_bytes = size_of(local.get(change.path))
            if change.entry is None or _source(change, size_bytes, moved) is not Source.BLOB:
                continue
            try:
                if not await self._upload(change.path, change.entry.content, local[change.path]):
                    refused[change.path] = None
            except QuotaExceeded as exc:
                if isinstance(exc, Throttled):
                    raise
                refused[change.path] = Result(0, Outcome.FAILED, None, "disk_full")
        return refused

    async def _upload(self, path: Path, digest: bytes, state: State) -> bool:
        """Send a large content; what arrived before a cut is not sent again. False if it changed meanwhile."""
        have = await self._guest.blob(digest)
        if not have.offset and (name := begun_name(self._folder.identity, path, state)):
            # It may have had a head start, in this process or in one that was killed.
            begun = await self._guest.blob(name)
            is_begun = begun.offset > 0 and not begun.is_complete
            if is_begun and await self._send_rest(path, name, begun, state.size_bytes, is_provisional=True):
                have = await self._guest.blob(digest)
        return have.is_complete or await self._send_rest(path, digest, have, state.size_bytes)

    async def _send_rest(
        self, path: Path, name: bytes, have: BlobState, size_bytes: int, *, is_provisional: bool = False
    ) -> bool:
        """Send what is missing of a content; False if its file is another one by now."""
        is_sparse = await asyncio.to_thread(self._folder.is_sparse, path)

        async def send(offset: int) -> BlobState:
            return await self._guest.upload_blob(
                name,
                self._counted(self._folder.pieces(path, size_bytes, start=offset, may_end=True)),
                offset=offset,
                size_bytes=size_bytes,
                is_sparse=is_sparse,
                is_provisional=is_provisional,
            )

        try:
            try:
                have = await send(have.offset)
            except Conflict as exc:
                if exc.details.get("guest_code") != "bad_offset":
                    raise
                # What a process that is gone had on its way came meanwhile; from now on, nobody listens to it.
                have = await self._guest.blob(name)
                have = have if have.is_complete else await send(have.offset)
        except Conflict as exc:
            if exc.details.get("guest_code") in ("boot_changed", "root_changed"):
                raise
            return False
        if not have.is_complete:
            # The file is another one by now, and nobody will send the rest.
            await self._guest.drop_blob(name, have.offset)
        return have.is_complete

    async def _counted(self, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for piece in pieces:
            self._on_bytes(len(piece))
            yield piece


def _parts(changes: Sequence[Change]) -> tuple[list[Change], list[Change], list[Change]]:
    """Changes in three parts, each to be done when the one before is.

    The middle one is what is made, a folder directly before all that is in it, with nothing that is removed in between.
    """
    numbers = [number for number, change in enumerate(changes) if change.op in _MAKING]
    first, last = (numbers[0], numbers[-1] + 1) if numbers else (0, 0)
    middle = changes[first:last]
    if any(change.entry is None for change in middle):
        return list(changes), [], []
    return list(changes[:first]), list(middle), list(changes[last:])


def _lots(making: Sequence[Change], local: Mapping[Path, State]) -> Iterator[tuple[list[Change], list[Change]]]:
    """What is made in batches that need no order among themselves: each with the new folders its first change is in.

    These are in an earlier batch, too. A folder with all that is in it in one batch is put in its place in one step.
    A large content that several files have is sent once, for one batch: each uses up what it needs.
    """
    folders = {change.path: change for change in making if change.op is Op.MKDIR}
    alike = _alike(making, local)
    held = {id(change) for some in alike for change in some}
    for batch in in_batches([change for change in making if id(change) not in held], local):
        yield _new_above(batch[:1], folders), batch
    for some in alike:
        yield _new_above(some, folders), some


def _new_above(changes: Iterable[Change], folders: Mapping[Path, Change]) -> list[Change]:
    """The new folders that changes are in, each behind the one it is in."""
    paths = {path for change in changes for path in ancestors(parent_of(change.path)) if path in folders}
    return [folders[path] for path in sorted(paths)]


def _alike(making: Sequence[Change], local: Mapping[Path, State]) -> list[list[Change]]:
    """Files that get the same large content, together."""
    found: dict[bytes, list[Change]] = {}
    for change in making:
        if change.op is Op.PUT and change.entry is not None and size_of(local.get(change.path)) > INLINE_BYTES:
            found.setdefault(change.entry.content, []).append(change)
    return [
        some[start : start + BATCH_OPS]
        for some in found.values()
        if len(some) > 1
        for start in range(0, len(some), BATCH_OPS)
    ]


def size_of(state: State | None) -> int:
    """How long the content of a state is, as far as that is known."""
    return 0 if state is None else state.size_bytes


def wire_op(
    change: Change,
    there: Mapping[Path, State],
    *,
    size_bytes: int = 0,
    source: Source = Source.INLINE,
    known_path: Path = b"",
) -> WireOp:
    """A change as an operation. `there` is what stands on its side: with the stamp, the other end need not read it."""
    seen = there.get(change.path)
    expect = seen if seen == change.expect else _bare(change.expect)
    goal = _bare(change.entry)
    return WireOp(change.op, change.path, goal, expect, size_bytes, source, known_path)


def _bare(state: State | None) -> State | None:
    """A state without the stamp of another machine, or of before."""
    return None if state is None else state.with_stamp(None)


def _source(change: Change, size_bytes: int, moved: Mapping[bytes, Path]) -> Source:
    if change.op is not Op.PUT or change.entry is None:
        return Source.INLINE
    if change.entry.content in moved:
        return Source.KNOWN
    return Source.BLOB if size_bytes > INLINE_BYTES else Source.INLINE


def _known_path(change: Change, moved: Mapping[bytes, Path]) -> Path:
    return moved.get(change.entry.content, b"") if change.op is Op.PUT and change.entry is not None else b""


def _contents_that_go(changes: Iterable[Change]) -> dict[bytes, Path]:
    """Contents of files that are deleted: a file of another name with the same one was moved, and need not be sent."""
    return {
        change.expect.content: change.path
        for change in changes
        if change.op is Op.DELETE and change.expect is not None and change.expect.kind == "file"
    }


def in_batches(changes: Sequence[Change], source: Mapping[Path, State]) -> Iterator[list[Change]]:
    """Changes in their order, in lots that are worth a request each; `source` is where contents come from."""
    held: list[Change] = []
    held_bytes = 0
    for change in changes:
        size_bytes = size_of(source.get(change.path)) if change.op is Op.PUT else 0
        if held and (len(held) >= BATCH_OPS or held_bytes + size_bytes > _BATCH_BYTES):
            yield held
            held, held_bytes = [], 0
        held.append(change)
        held_bytes += size_bytes
    if held:
        yield held
