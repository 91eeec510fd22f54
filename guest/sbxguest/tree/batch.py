"""A batch coming in: its contents wait in the stage until its end is there, then its operations are made in order."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator

from sbxguest import wire
from sbxguest.tree.apply import Applier
from sbxguest.tree.blobs import Blobs
from sbxguest.tree.contents import Unstable, open_file
from sbxguest.tree.entry import BadRecord, State, new_digest
from sbxguest.tree.frames import INLINE_BYTES, TreeFrame, decode_trailer, sound_frames
from sbxguest.tree.journal import BatchJournal, mark_of
from sbxguest.tree.newfolders import NewFolders
from sbxguest.tree.ops import (
    NewFile,
    Op,
    OpKind,
    Outcome,
    Result,
    Source,
    decode_new_file,
    decode_op,
    encode_done,
    encode_result,
)
from sbxguest.tree.pending import BuiltFiles, Pending, blob_of
from sbxguest.tree.report import TreeError, code_of
from sbxguest.tree.root import split
from sbxguest.tree.stage import Incoming, copied, kept

MAX_OPS = 30_000
MAX_BYTES = 256 * wire.MIB
# There are as many as there are files: a member of an enumeration is looked up once.
_OP, _DATA, _END = int(TreeFrame.OP), int(wire.FrameType.DATA), int(TreeFrame.END)
_PUT, _MKDIR, _INLINE, _DONE = OpKind.PUT, OpKind.MKDIR, Source.INLINE, Outcome.DONE
# Whoever else changes the tree waits for so many operations, or so long; folders are held open no longer, either.
_OPS_PER_TURN, _TURN_S = 64, 0.05


class Batch:
    """One batch on one tree. Used from several threads one after another; `abort` it, whatever it came to.

    Args:
        applier: Makes the operations.
        blobs: Large contents.
        batch_id: Names it, for when it comes again; a file name.
    """

    def __init__(self, applier: Applier, blobs: Blobs, batch_id: str) -> None:
        self._applier = applier
        self._blobs = blobs
        self._id = batch_id
        # Another folder at the same path has the same stage, and nothing was done to it.
        self._journal = BatchJournal(applier.stage, f"{applier.root.identity}.{batch_id}")
        self._frames = wire.FrameDecoder()
        self._digest = new_digest()
        self._steps: deque[Pending | BuiltFiles] = deque()
        self._count = 0
        self._folders = NewFolders(applier.stage, applier.own, blobs.make_room)
        # The content that is coming in, and whose it is.
        self._incoming: Incoming | None = None
        self._receiving: Pending | None = None
        self._skip_bytes = 0
        self._size_bytes = 0
        self._is_whole = False
        self._is_closed = False
        # A request that was cut off leaves a thread behind that finishes what it is at.
        self._lock = threading.Lock()

    def write(self, chunks: Iterable[bytes]) -> None:
        """Take the next bytes of the stream.

        Raises:
            BadRecord: They are no batch. TreeError: It is too large, or another one had its id.
        """
        with self._lock:
            for chunk in chunks:
                if self._is_closed:
                    raise TreeError("cut", "the batch was given up")
                for frame in sound_frames(self._frames, chunk):
                    self._take(frame)

    def _take(self, frame: wire.Frame) -> None:
        if self._is_whole:
            raise BadRecord("something came behind the end of a batch")
        if frame.type == _OP:
            self._begin(frame.payload)
        elif frame.type == _DATA:
            self._data(frame.payload)
        elif frame.type == _END:
            self._end(frame)
        else:
            raise BadRecord(f"a frame of type {frame.type} is no part of a batch")

    def check(self) -> None:
        """Refuse a batch that is not whole.

        Raises:
            BadRecord: Its end has not come.
        """
        if not self._is_whole:
            raise BadRecord("the batch was cut off")

    def results(
        self, on_made: Callable[[bytes, State | None], None] = lambda path, state: None
    ) -> Iterator[list[bytes]]:
        """Make the operations in order, some at a time with no other batch in between; the encoded results of those.

        Args:
            on_made: Called with what stands at a path as soon as it does.

        Raises:
            BadRecord: The end of the batch has not come: nothing was done. TreeError: The tree's root is gone.
        """
        self.check()
        self._journal.load()
        single = [step for step in self._steps if isinstance(step, Pending)]
        for pending in single:
            pending.done = self._journal.find(pending.seq, pending.mark)
        uses = Counter(blob_of(pending) for pending in single)
        while self._steps:
            yield self._some(uses, on_made)

    def _some(self, uses: Counter[bytes], on_made: Callable[[bytes, State | None], None]) -> list[bytes]:
        """Make what comes next, for as long as nobody is kept waiting for it."""
        made: list[bytes] = []
        until_s = time.monotonic() + _TURN_S
        with self._applier.alone():
            self._applier.root.check()
            while self._steps and len(made) < _OPS_PER_TURN and not (made and time.monotonic() > until_s):
                step = self._steps.popleft()
                if isinstance(step, Pending):
                    made.append(self._made(step, uses, on_made))
                elif self._folders.is_in_place(step.folder):
                    made += self._made_with_their_folder(step)
                else:
                    self._steps.extendleft(reversed(self._one_by_one(step)))
        return made

    def _one_by_one(self, files: BuiltFiles) -> list[Pending]:
        """Files whose folder could not be put in its place, or was made by another request with the same batch."""
        pendings: list[Pending] = []
        for seq, (record, mark) in enumerate(zip(files.records, files.marks, strict=True), files.seq):
            op, _ = decode_op(record)
            pendings.append(Pending(seq, op, mark, self._journal.find(seq, mark), self._folders.name_of(op.path)))
        return pendings

    def _made_with_their_folder(self, files: BuiltFiles) -> list[bytes]:
        results = [encode_done(seq, state) for seq, state in enumerate(files.states, files.seq)]
        for mark, result in zip(files.marks, results, strict=True):
            self._journal.add(mark, result)
        return results

    def _made(self, pending: Pending, uses: Counter[bytes], on_made: Callable[[bytes, State | None], None]) -> bytes:
        op = pending.op
        if blob := blob_of(pending):
            uses[blob] -= 1
            self._take_blob(pending, blob, is_last=not uses[blob])
        if pending.done is not None:
            self._forget(pending)
            on_made(op.path, pending.done.state)
            return encode_result(pending.done)
        if pending.built is not None and self._is_in_place(op, on_made):
            result = Result(pending.seq, _DONE, pending.built)
        else:
            is_dressed, problem = op.source is _INLINE, pending.problem
            result = self._applier.apply(
                self._id, pending.seq, op, pending.content, is_dressed=is_dressed, problem=problem
            )
            if result.outcome is _DONE:
                on_made(op.path, result.state)
        encoded = encode_result(result)
        if result.outcome is _DONE:
            self._journal.add(pending.mark, encoded)
        return encoded

    def _is_in_place(self, op: Op, on_made: Callable[[bytes, State | None], None]) -> bool:
        """Whether what was built for an operation stands where it belongs, by now or since its folder does."""
        if op.kind is not _MKDIR:
            return self._folders.is_in_place(split(op.path)[0])
        return self._folders.place(op.path, lambda name: self._applier.put_folder(name, op.path), on_made)

    def abort(self) -> None:
        """Forget what was not made, and let go. Safe to repeat, and while another thread still writes."""
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                self._let_go()

    def _let_go(self) -> None:
        if self._incoming is not None:
            self._incoming.abort()
            self._incoming = None
        for step in self._steps:
            if isinstance(step, Pending):
                self._forget(step)
        self._steps.clear()
        self._folders.drop()
        self._applier.forget()
        self._journal.close()
        self._applier.trash.prune(keep=self._id)

    def _forget(self, pending: Pending) -> None:
        if pending.content:
            self._applier.stage.drop(pending.content)

    def _begin(self, payload: bytes) -> None:
        if self._incoming is not None or self._skip_bytes:
            raise BadRecord("a content is cut off")
        new = decode_new_file(payload)
        if new is not None:
            self._begin_new(new)
            return
        op, at = decode_op(payload)
        pending = self._pending(op, payload[:at])
        if op.kind is not _PUT:
            self._build(pending)
        elif op.source is _INLINE:
            self._begin_content(pending, payload[at:])
        elif op.source is Source.KNOWN and pending.done is None and op.goal is not None:
            self._copy_known(pending, op.goal.content)

    def _pending(self, op: Op, record: bytes) -> Pending:
        """Take note of an operation, and see whether it was made before."""
        seq = self._counted(record, op.size_bytes if op.kind is _PUT and op.source is _INLINE else 0)
        mark = mark_of(record)
        pending = Pending(seq, op, mark, self._journal.find(seq, mark))
        self._steps.append(pending)
        return pending

    def _counted(self, record: bytes, size_bytes: int) -> int:
        """Count one more operation, and how long the content is that comes with it; returns its number.

        Raises:
            TreeError: There is too much of either.
        """
        self._digest.update(record)
        seq = self._count
        self._count += 1
        self._size_bytes += size_bytes
        if seq >= MAX_OPS:
            raise TreeError("too_large", f"a batch may have {MAX_OPS} operations")
        if size_bytes > INLINE_BYTES or self._size_bytes > MAX_BYTES:
            raise TreeError("too_large", "this content must be uploaded by itself, or the batch be divided")
        return seq

    def _build(self, pending: Pending) -> None:
        """Make a folder, or a link in one that is built already, ready for its place."""
        op = pending.op
        if op.goal is None or op.expect is not None or pending.done is not None:
            return
        if op.kind is _MKDIR:
            pending.built = self._folders.folder(op.path)
        elif self._folders.holds(split(op.path)[0]):
            pending.built = self._folders.link(op.path, op.goal.content)

    def _begin_new(self, new: NewFile) -> None:
        seq = self._counted(new.record, len(new.content))
        mark = mark_of(new.record)
        done, problem = self._journal.find(seq, mark), ""
        if done is None:
            try:
                if (state := self._folders.file(new)) is not None:
                    self._add_built(seq, mark, new, state)
                    return
            except OSError as exc:
                problem = code_of(exc)
        pending = Pending(seq, new.op, mark, done, problem=problem)
        self._steps.append(pending)
        self._take_in(pending, new.content)

    def _add_built(self, seq: int, mark: int, new: NewFile, state: State) -> None:
        folder, _ = split(new.path)
        last = self._steps[-1]
        if not isinstance(last, BuiltFiles) or last.folder != folder:
            last = BuiltFiles(seq, folder)
            self._steps.append(last)
        last.records.append(new.record)
        last.marks.append(mark)
        last.states.append(state)

    def _begin_content(self, pending: Pending, packed: bytes) -> None:
        size_bytes = pending.op.size_bytes
        if packed and len(packed) != size_bytes:
            raise BadRecord("a content is not as long as was said")
        self._take_in(pending, packed if packed or not size_bytes else None)

    def _take_in(self, pending: Pending, content: bytes | None) -> None:
        """Keep a content, or begin to if it is still to come (None)."""
        op = pending.op
        try:
            if pending.done is None and not pending.problem and op.goal is not None:
                self._keep(pending, op.goal, content)
        except TreeError as exc:
            pending.problem = exc.code
        except OSError as exc:
            pending.problem = code_of(exc)
        if content is None and self._incoming is None:
            self._skip_bytes = op.size_bytes

    def _keep(self, pending: Pending, goal: State, content: bytes | None) -> None:
        """Put a content into the stage by itself, or begin to."""
        stage, make_room, dress = self._applier.stage, self._blobs.make_room, self._applier.dress

        def dressed(fd: int) -> None:
            dress(fd, goal.is_executable)

        if content is not None:
            pending.content = kept(stage, content, goal.content, make_room, dressed)
            return
        self._receiving = pending
        self._incoming = Incoming(stage, goal.content, pending.op.size_bytes, make_room)
        self._incoming.dress(dressed)

    def _data(self, piece: bytes) -> None:
        if self._incoming is None:
            if len(piece) > self._skip_bytes:
                raise BadRecord("a content without its operation, or longer than was said")
            self._skip_bytes -= len(piece)
            return
        if len(piece) > self._incoming.left_bytes:
            raise BadRecord("a content is longer than was said")
        self._take_piece(piece)

    def _take_piece(self, piece: bytes) -> None:
        """The next piece of the content that is coming in; what cannot be kept is a problem of that operation only."""
        incoming, pending = self._incoming, self._receiving
        if incoming is None or pending is None:
            return
        try:
            left = incoming.left_bytes - len(piece)
            incoming.write(piece)
            if incoming.is_whole:
                pending.content = incoming.finish()
                self._incoming = None
        except TreeError as exc:
            pending.problem = exc.code
            self._incoming = None
        except OSError as exc:
            pending.problem = code_of(exc)
            incoming.abort()
            self._incoming = None
            self._skip_bytes = left

    def _end(self, frame: wire.Frame) -> None:
        trailer = decode_trailer(frame)
        is_right = (trailer.count, trailer.digest) == (self._count, self._digest.hexdigest())
        if self._incoming is not None or self._skip_bytes or not is_right:
            raise BadRecord("the batch is not the one its end speaks of")
        self._is_whole = True

    def _take_blob(self, pending: Pending, digest: bytes, *, is_last: bool) -> None:
        try:
            pending.content = self._blobs.take(digest, is_last=is_last)
        except TreeError as exc:
            pending.problem = exc.code
        except OSError as exc:
            pending.problem = code_of(exc)

    def _copy_known(self, pending: Pending, digest: bytes) -> None:
        """Copy a content from the tree or the trash, checking it on the way."""
        pending.problem = "content_missing"
        for fd in self._known_places(pending.op.known_path, digest):
            try:
                if os.fstat(fd).st_size == (size_bytes := pending.op.size_bytes):
                    make_room = self._blobs.make_room
                    pending.content = copied(fd, self._applier.stage, digest, size_bytes, make_room)
                    pending.problem = ""
                    return
            except TreeError:
                continue
            except OSError as exc:
                pending.problem = code_of(exc)
            finally:
                os.close(fd)

    def _known_places(self, path: bytes, digest: bytes) -> Iterator[int]:
        """Descriptors of files that may have a content, each to be closed."""
        if path:
            folder, name = split(path)
            with contextlib.suppress(OSError, Unstable):
                folder_fd = self._applier.root.open_folder(folder)
                try:
                    fd, _ = open_file(name, folder_fd)
                finally:
                    os.close(folder_fd)
                yield fd
        if (trashed := self._applier.trash.find(digest)) is not None:
            yield trashed
