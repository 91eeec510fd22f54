"""Streams of a sync that are made in threads: listings, results, contents; with a heartbeat while one is thought of."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Generator, Iterator

from sbxguest import wire
from sbxguest.filepool import in_thread, soon
from sbxguest.opentree import OpenTree
from sbxguest.tree.batch import Batch
from sbxguest.tree.contents import Unstable, is_unchanged, open_file
from sbxguest.tree.entry import State, new_digest
from sbxguest.tree.frames import (
    DATA_BYTES,
    HEARTBEAT_S,
    data_frames,
    encoded_result_writer,
    error_frame,
    manifest_writer,
    result_writer,
)
from sbxguest.tree.ops import Outcome, Result
from sbxguest.tree.report import TreeError, code_of
from sbxguest.tree.root import file_state, split
from sbxguest.tree.scan import ScanOptions, scan

_PIECE_BYTES = 64 * 1024
_SLICE_S = 0.1
_HEARTBEAT = wire.encode(wire.Frame(wire.FrameType.HEARTBEAT, 0))

Wanted = tuple[bytes, bytes]


class Stop:
    """Ends work in a thread whose reader has gone."""

    def __init__(self) -> None:
        self.is_set = False

    def check(self) -> None:
        """Raise TreeError if it was set."""
        if self.is_set:
            raise TreeError("cut", "nobody reads this any more")


async def beating(pieces: Generator[bytes, None, None], stop: Stop) -> AsyncGenerator[bytes, None]:
    """The pieces of a stream as a thread makes them, and heartbeats in between. Closing it ends the thread's work."""
    task: asyncio.Task[bytes | None] | None = None
    loop = asyncio.get_running_loop()
    beat_at_s = loop.time() + HEARTBEAT_S
    try:
        while True:
            task = asyncio.create_task(in_thread(_next, pieces))
            while not task.done():
                await asyncio.wait((task,), timeout=beat_at_s - loop.time())
                if not task.done():
                    yield _HEARTBEAT
                    beat_at_s = loop.time() + HEARTBEAT_S
            piece = task.result()
            if piece is None:
                return
            if piece:
                yield piece
                beat_at_s = loop.time() + HEARTBEAT_S
    finally:
        stop.is_set = True
        if task is not None and not task.done():
            # The thread is in the generator until it looks at `stop`; before, that cannot be closed.
            task.add_done_callback(lambda _: soon(pieces.close))
        else:
            soon(pieces.close)


def _next(pieces: Iterator[bytes]) -> bytes | None:
    """What is worth sending now, perhaps nothing; None at the end. A failure ends the stream with its reason."""
    held: list[bytes] = []
    held_bytes = 0
    until_s = time.monotonic() + _SLICE_S
    try:
        while held_bytes < _PIECE_BYTES and time.monotonic() < until_s:
            piece = next(pieces, None)
            if piece is None:
                return b"".join(held) or None
            held.append(piece)
            held_bytes += len(piece)
    except TreeError as exc:
        held.append(error_frame(exc))
    except OSError as exc:
        held.append(error_frame(TreeError(code_of(exc), os.strerror(exc.errno or 0))))
    return b"".join(held)


def manifest_pieces(
    tree: OpenTree, paths: list[bytes], options: ScanOptions, cursor: str
) -> Generator[bytes, None, None]:
    """A listing, with its trailer only if it is complete."""
    writer = manifest_writer()
    for record in scan(tree.root, paths, options):
        yield writer.add(record)
    yield writer.end(cursor)


def result_pieces(tree: OpenTree, batch: Batch, stop: Stop) -> Generator[bytes, None, None]:
    """Make the operations of a batch; what was made when nobody reads any more stays made, and is in its journal."""
    writer = encoded_result_writer()
    try:
        for some in batch.results(tree.own_writes.note):
            yield b"".join(map(writer.add, some))
            stop.check()
        yield writer.end()
    finally:
        batch.abort()


def content_pieces(tree: OpenTree, wanted: list[Wanted], stop: Stop) -> Generator[bytes, None, None]:
    """The contents of files, and behind each its result."""
    writer = result_writer()
    for seq, (path, digest) in enumerate(wanted):
        try:
            state = yield from _content(tree, path, stop)
        except Unstable:
            result = Result(seq, Outcome.FAILED, None, "unstable")
        except OSError as exc:
            result = Result(seq, Outcome.FAILED, None, code_of(exc))
        else:
            is_other = bool(digest) and state.content != digest
            result = Result(seq, Outcome.MISMATCH if is_other else Outcome.DONE, state)
        # Not held back: what comes behind it belongs to the next file.
        yield writer.add(result) + writer.flush()
    yield writer.end()


def _content(tree: OpenTree, path: bytes, stop: Stop) -> Generator[bytes, None, State]:
    folder, name = split(path)
    folder_fd = tree.root.open_folder(folder)
    try:
        at_ns = time.time_ns()
        fd, before = open_file(name, folder_fd)
    finally:
        os.close(folder_fd)
    try:
        digest, at = new_digest(), 0
        while at < before.st_size and (chunk := os.read(fd, min(DATA_BYTES, before.st_size - at))):
            stop.check()
            digest.update(chunk)
            yield from data_frames(at, chunk)
            at += len(chunk)
        if not is_unchanged(before, os.fstat(fd)):
            raise Unstable
        return file_state(before, digest.digest(), at_ns)
    finally:
        os.close(fd)
