"""One side of a sync for tests: a real folder with its stage, and operations as short as they can be written."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sbxguest.tree import Entry, Kind, Op, OpKind, Outcome, Result, Source, State
from sbxguest.tree.apply import Applier
from sbxguest.tree.batch import Batch
from sbxguest.tree.blobs import Blobs
from sbxguest.tree.entry import new_digest
from sbxguest.tree.frames import PACKED_BYTES, BatchWriter, data_frames
from sbxguest.tree.ops import decode_results
from sbxguest.tree.root import Root
from sbxguest.tree.scan import scan
from sbxguest.tree.stage import Stage, stage_paths
from sbxguest.tree.trash import Trash

Content = tuple[Op, bytes]


class TreeSide:
    """A folder that batches are made on."""

    def __init__(self, folder: Path, *, trash_bytes: int = 1024**3) -> None:
        self.folder = folder
        self.root = Root(str(folder))
        self.stage = Stage(self.root, stage_paths(self.root))
        self.trash = Trash(self.stage, max_bytes=trash_bytes)
        self.applier = Applier(self.root, self.stage, self.trash)
        self.blobs = Blobs(self.stage, self.trash.make_room)

    def close(self) -> None:
        """Let go of everything; what is on the disk stays."""
        self.applier.forget()
        self.stage.close()
        self.root.close()

    def state(self, path: bytes) -> State | None:
        """What stands at a path, with its content."""
        for record in scan(self.root, (path,)):
            if isinstance(record, Entry) and record.path == path:
                return record.state
        return None

    def apply(self, op: Op, content: bytes = b"") -> Result:
        """Make one operation as a batch of its own."""
        return self.send(os.urandom(8).hex(), [(op, content)])[0]

    def send(self, batch_id: str, steps: Iterable[Content], *, chunk_bytes: int = 10_000) -> list[Result]:
        """Make a batch, as if it came over a wire in pieces."""
        data = stream_of(steps)
        batch = Batch(self.applier, self.blobs, batch_id)
        try:
            for start in range(0, len(data), chunk_bytes):
                batch.write([data[start : start + chunk_bytes]])
            return made_of(batch)
        finally:
            batch.abort()

    def trashed(self) -> dict[bytes, bytes]:
        """The contents of all files in the trash, by path; the newest of each."""
        found: dict[bytes, bytes] = {}
        for batch_id in self.trash.batches():
            for one in self.trash.items(batch_id):
                if one.entry.state.kind is Kind.FILE:
                    with self.trash.opened(batch_id, one) as fd:
                        found[one.entry.path] = os.read(fd, 10**7)
        return found

    def is_stage_empty(self) -> bool:
        """Whether nothing waits for anything."""
        return not os.listdir(self.stage.incoming_fd)


@contextmanager
def tree_side(folder: Path, *, trash_bytes: int = 1024**3) -> Iterator[TreeSide]:
    """A side on `folder`, which is made if need be; let go of after the block."""
    folder.mkdir(exist_ok=True)
    side = TreeSide(folder, trash_bytes=trash_bytes)
    try:
        yield side
    finally:
        side.close()


def stream_of(steps: Iterable[Content]) -> bytes:
    """A batch as it travels."""
    writer = BatchWriter()
    data = bytearray()
    for op, content in steps:
        is_packed = len(content) <= PACKED_BYTES
        data += writer.op(op, content if is_packed else b"")
        if not is_packed:
            for frame in data_frames(0, content):
                data += frame
    return bytes(data) + writer.end()


def made_of(batch: Batch, on_made: Callable[[bytes, State | None], None] = lambda path, state: None) -> list[Result]:
    """Make all operations of a batch."""
    return [result for some in batch.results(on_made) for result in decode_results(b"".join(some))]


def sha(content: bytes) -> bytes:
    """A content's digest."""
    return new_digest(content).digest()


def put(path: bytes, content: bytes, expect: State | None = None, *, is_executable: bool = False) -> Content:
    """A file with its content."""
    goal = State(Kind.FILE, sha(content), is_executable)
    return Op(OpKind.PUT, path, goal, expect, len(content)), content


def put_known(path: bytes, content: bytes, source: Source, known_path: bytes = b"") -> Content:
    """A file whose content the other side is to have already."""
    return Op(OpKind.PUT, path, State(Kind.FILE, sha(content)), None, len(content), source, known_path), b""


def mkdir(path: bytes) -> Content:
    """A folder."""
    return Op(OpKind.MKDIR, path, State(Kind.DIR)), b""


def link(path: bytes, target: bytes, expect: State | None = None) -> Content:
    """A link."""
    return Op(OpKind.LINK, path, State(Kind.LINK, target), expect), b""


def chmod(path: bytes, expect: State, *, is_executable: bool) -> Content:
    """An executable bit."""
    return Op(OpKind.CHMOD, path, State(Kind.FILE, expect.content, is_executable), expect), b""


def delete(path: bytes, expect: State) -> Content:
    """A file or link that goes."""
    return Op(OpKind.DELETE, path, None, expect), b""


def rmdir(path: bytes) -> Content:
    """A folder that goes."""
    return Op(OpKind.RMDIR, path, None, State(Kind.DIR)), b""


def file(content: bytes, *, is_executable: bool = False) -> State:
    """What is expected of a file, told by its content alone."""
    return State(Kind.FILE, sha(content), is_executable)


def outcomes(results: Iterable[Result]) -> list[Outcome | str]:
    """The outcomes, and of what failed why."""
    return [one.code or one.outcome for one in results]
