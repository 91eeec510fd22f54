"""What became of the operations of a batch, so that one that is sent again is not made again."""

from __future__ import annotations

import contextlib
import os
import struct
import time
import zlib

from sbxguest.tree.entry import BadRecord
from sbxguest.tree.ops import Result, decode_results
from sbxguest.tree.report import TreeError
from sbxguest.tree.root import READ_FLAGS
from sbxguest.tree.stage import Stage

MAX_AGE_S = 24 * 3600.0
_HEAD = struct.Struct(">IH")
_HELD_NOTES = 64
_APPEND_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC


class BatchJournal:
    """The results of one batch that came out well, on disk. Close it.

    What was refused or failed is not kept: nothing was done, and asking again may help.
    """

    def __init__(self, stage: Stage, batch_id: str) -> None:
        self._stage = stage
        self._id = batch_id
        self._held: list[bytes] = []
        self._fd = os.open(batch_id, _APPEND_FLAGS, 0o600, dir_fd=stage.batches_fd)
        try:
            self.load()
        except BaseException:
            self.close()
            raise

    def load(self) -> None:
        """Read what is there by now: the same batch may have been made by another request meanwhile."""
        with os.fdopen(os.open(self._id, READ_FLAGS, dir_fd=self._stage.batches_fd), "rb") as file:
            self._known = _decoded(file.read())

    def find(self, seq: int, mark: int) -> Result | None:
        """What became of an operation before.

        Args:
            seq: Its number.
            mark: See `mark_of`.

        Raises:
            TreeError: It was another one (`conflict`): two batches have the same id.
        """
        known = self._known.get(seq)
        if known is None:
            return None
        if known[0] != mark:
            raise TreeError("conflict", "another batch had this id")
        return known[1]

    def add(self, mark: int, result: bytes) -> None:
        """Note that an operation was made, by its encoded result.

        Notes are written some at a time. One that was not when the process is killed costs a look: an operation that
        is asked for again finds that what it should make stands there.
        """
        self._held.append(_HEAD.pack(mark, len(result)) + result)
        if len(self._held) >= _HELD_NOTES:
            self._flush()

    def close(self) -> None:
        """Write what is noted, and close it."""
        self._flush()
        os.close(self._fd)

    def _flush(self) -> None:
        # A disk that is full does not undo what was made.
        with contextlib.suppress(OSError):
            os.write(self._fd, b"".join(self._held))
        self._held.clear()


def mark_of(encoded: bytes) -> int:
    """What tells an operation from another one with the same number, from its bytes."""
    return zlib.crc32(encoded)


def prune(stage: Stage) -> None:
    """Forget batches that nobody will send again."""
    oldest = time.time() - MAX_AGE_S
    for name in os.listdir(stage.batches_fd):
        with contextlib.suppress(OSError):
            if os.stat(name, dir_fd=stage.batches_fd, follow_symlinks=False).st_mtime < oldest:
                os.unlink(name, dir_fd=stage.batches_fd)


def _decoded(data: bytes) -> dict[int, tuple[int, Result]]:
    """What the journal says; what a killed process left half written at its end does not count."""
    known: dict[int, tuple[int, Result]] = {}
    at = 0
    while at + _HEAD.size <= len(data):
        mark, length = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        with contextlib.suppress(BadRecord):
            for result in decode_results(data[at : at + length]):
                known[result.seq] = (mark, result)
        at += length
    return known
