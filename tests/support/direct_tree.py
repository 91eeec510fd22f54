"""A sandbox's folder as the guest serves it, with the guest's own parts but without a process and HTTP between.

For tests of thousands of steps. What real guests do beyond this is tested on them.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Mapping, Sequence

from sbxguest.tree import Outcome, Result
from sbxguest.tree.apply import Applier
from sbxguest.tree.batch import Batch
from sbxguest.tree.blobs import Blobs
from sbxguest.tree.contents import Unstable, open_file
from sbxguest.tree.entry import new_digest
from sbxguest.tree.root import Root, file_state, split
from sbxguest.tree.scan import ScanOptions, scan
from sbxguest.tree.stage import Stage, stage_paths
from sbxguest.tree.trash import Trash
from sbxtui.core.errors import FileMissing, QuotaExceeded
from sbxtui.guest.tree import GuestTree, Manifest, Wanted
from sbxtui.guest.treebodies import Step, batch_body
from sbxtui.guest.treewire import BlobState, Changes, TreeHello, sound_records
from tests.support.tree_side import made_of


def _no_fault(point: str) -> None:
    return


class DirectTree(GuestTree):
    """A folder of this machine in the place of a sandbox's. Close it.

    Args:
        path: The folder.
        fault: Called with a word at each point at which a connection may break; raises to break it.

    Attributes:
        epoch: What it says of its boot.
        max_operations: What it says it takes at once.
        names_contents: What it says of contents whose digest is not known yet.
        uploaded_bytes: How much of large contents came over.
        sent: Paths whose content came over, in order.
        is_doubled: Asked of each batch, whether it comes a second time, as after an answer that was lost.
    """

    def __init__(self, path: str, fault: Callable[[str], None] = _no_fault) -> None:
        self.path = path
        self.fault = fault
        self.epoch = "boot-1"
        self.max_operations = 30_000
        self.names_contents = True
        self.uploaded_bytes = 0
        self.guest_id = "guest-1"
        self.sent: list[bytes] = []
        self.is_doubled: Callable[[], bool] = lambda: False
        self._told: set[bytes] = set()
        self._bell = asyncio.Event()
        self._open()

    def _open(self) -> None:
        self.root = Root(self.path)
        self._stage = Stage(self.root, stage_paths(self.root))
        self.trash = Trash(self._stage)
        self._applier = Applier(self.root, self._stage, self.trash)
        self._blobs = Blobs(self._stage, self.trash.make_room)

    def close(self) -> None:
        """Close it."""
        self._applier.forget()
        self._stage.close()
        self.root.close()

    async def hello(self) -> TreeHello:
        """What the folder is now."""
        self.fault("hello")
        if not self.root.is_in_place:
            if not os.path.isdir(self.path):
                raise FileMissing(f"{self.path} is not there")
            self.close()
            self._open()
        return TreeHello(
            self.guest_id, self.epoch, self.root.identity, "scan", (), self.max_operations, self.names_contents
        )

    async def scan(
        self,
        paths: Sequence[bytes] = (b"",),
        *,
        has_digests: bool = True,
        is_deep: bool = True,
        has_cursor: bool = True,
        ignore: Mapping[bytes, Sequence[bytes]] | None = None,
    ) -> Manifest:
        """What stands there."""
        self.fault("scan")
        table = ignore or {}
        options = ScanOptions(has_digests=has_digests, is_deep=is_deep, texts=lambda path, *_: table.get(path, ()))
        return Manifest(tuple(scan(self.root, paths, options)), "0")

    async def batch(self, batch_id: str, steps: Iterable[Step] | AsyncIterable[Step]) -> list[Result]:
        """Make operations in order."""
        sending = self.send_batch(batch_id, batch_body(self._seen_on_the_way(steps)), lambda: 0)
        return [result async for some in sending for result in some]

    async def send_batch(
        self, batch_id: str, body: AsyncIterable[bytes], sent: Callable[[], int]
    ) -> AsyncGenerator[list[Result], None]:
        """Make operations that are encoded already."""
        batch = Batch(self._applier, self._blobs, batch_id)
        whole: list[bytes] = []
        try:
            async for piece in body:
                self.fault("sending")
                batch.write([piece])
                whole.append(piece)
            results = self._made(batch)
        finally:
            batch.abort()
        if self.is_doubled():
            again = Batch(self._applier, self._blobs, batch_id)
            try:
                again.write(whole)
                results = self._made(again)
            finally:
                again.abort()
        told = len(results) // 2
        yield results[:told]
        self.fault("answering")
        yield results[told:]

    def _made(self, batch: Batch) -> list[Result]:
        return made_of(batch, lambda _path, _state: self.fault("making"))

    async def _seen_on_the_way(self, steps: Iterable[Step] | AsyncIterable[Step]) -> AsyncGenerator[Step, None]:
        if isinstance(steps, AsyncIterable):
            async for step in steps:
                self._note(step)
                yield step
        else:
            for step in steps:
                self._note(step)
                yield step

    def _note(self, step: Step) -> None:
        if step.content:
            self.sent.append(step.op.path)

    def tell(self, *paths: bytes) -> None:
        """Let whoever waits for changes know of these."""
        self._told.update(paths)
        self._bell.set()

    async def changes(self, cursor: str, *, wait_s: float = 25.0) -> Changes:
        """What `tell` was told, when there is something."""
        await self._bell.wait()
        self._bell.clear()
        self.fault("listening")
        told, self._told = self._told, set()
        return Changes("1", tuple(told), False)

    async def blob(self, digest: bytes) -> BlobState:
        """How much of a large content is here."""
        return BlobState(*self._blobs.state(digest))

    async def upload_blob(
        self,
        digest: bytes,
        chunks: AsyncIterable[bytes],
        *,
        offset: int,
        size_bytes: int,
        is_sparse: bool = True,
        is_provisional: bool = False,
    ) -> BlobState:
        """Take in a large content."""
        with sound_records():
            writer = self._blobs.open(digest, offset=offset, size_bytes=size_bytes, is_provisional=is_provisional)
        try:
            async for chunk in chunks:
                writer.write([chunk])
                self.uploaded_bytes += len(chunk)
                self.fault("sending")
        except OSError as exc:
            raise QuotaExceeded("no space is left on the sandbox's disk") from exc
        finally:
            with sound_records():
                state = self._blobs.close(writer)
        return BlobState(*state)

    async def read(self, files: Sequence[Wanted]) -> AsyncGenerator[bytes | Result, None]:
        """The contents of files."""
        for seq, wanted in enumerate(files):
            self.fault("reading")
            folder, name = split(wanted.path)
            try:
                folder_fd = self.root.open_folder(folder)
                try:
                    fd, found = open_file(name, folder_fd)
                finally:
                    os.close(folder_fd)
            except (OSError, Unstable):
                yield Result(seq, Outcome.FAILED, None, "file_not_found")
                continue
            digest = new_digest()
            while piece := os.read(fd, 2**20):
                digest.update(piece)
                yield piece
                await asyncio.sleep(0)
            os.close(fd)
            yield Result(seq, Outcome.DONE, file_state(found, digest.digest()))
