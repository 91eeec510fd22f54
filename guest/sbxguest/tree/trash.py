"""What operations took away, kept for a while: each batch has a folder, each thing the number of its operation.

The name of a thing ends in its digest where that is known, so that the same content can be taken from here again.
"""

from __future__ import annotations

import contextlib
import errno
import os
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

from sbxguest.tree.entry import BadRecord, Entry, State, decode_records, encode_record
from sbxguest.tree.report import code_of
from sbxguest.tree.root import FOLDER_FLAGS, READ_FLAGS
from sbxguest.tree.stage import Stage

MAX_BYTES = 1024**3
MAX_AGE_S = 7 * 24 * 3600.0
_LOOK_S = 3600.0
_INDEX = "index"
_ITEM = struct.Struct(">QH")
_APPEND_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
# Room that is given up when there is none: moving something here takes a little, also where that is to make room.
_SPARE, _SPARE_BYTES = "spare", 64 * 1024
_SPARE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class _Held:
    """The folder of a batch and its index, open for as long as one thing after the other goes there."""

    batch_id: str
    fd: int
    index_fd: int

    @property
    def is_gone(self) -> bool:
        """Whether the folder was removed: another process may use the same trash."""
        return os.fstat(self.fd).st_nlink == 0

    def close(self) -> None:
        """Let go of both."""
        os.close(self.index_fd)
        os.close(self.fd)


@dataclass(frozen=True, slots=True)
class Trashed:
    """One thing in the trash: what stood where, and which operation of its batch took it away."""

    seq: int
    entry: Entry


class Trash:
    """The trash of a stage. Used from several threads."""

    def __init__(self, stage: Stage, *, max_bytes: int = MAX_BYTES, max_age_s: float = MAX_AGE_S) -> None:
        self._fd = stage.trash_fd
        self._stage_fd = stage.fd
        self._max_bytes = max_bytes
        self._max_age_s = max_age_s
        self._lock = threading.Lock()
        self._sizes: dict[str, int] = {}
        self._total_bytes = 0
        self._looked_at_s = float("-inf")
        self._by_digest: dict[bytes, tuple[str, str]] = {}
        self._held: _Held | None = None
        for batch in self.batches():
            self._load(batch)
        self._keep_spare()

    def batches(self) -> list[str]:
        """The ids of batches that left something here, the oldest first."""
        found: list[tuple[int, str]] = []
        for name in os.listdir(self._fd):
            with contextlib.suppress(OSError):
                found.append((os.stat(name, dir_fd=self._fd, follow_symlinks=False).st_mtime_ns, name))
        return [name for _, name in sorted(found)]

    def items(self, batch_id: str) -> list[Trashed]:
        """What a batch left here, in the order in which that was taken away."""
        try:
            with self._folder(batch_id) as fd:
                index = _read(fd, _INDEX)
                present = {name.partition("-")[0] for name in os.listdir(fd)}
        except OSError:
            return []
        return [one for one in _decoded(index) if str(one.seq) in present]

    @contextlib.contextmanager
    def slot(self, batch_id: str, seq: int, entry: Entry, size_bytes: int) -> Iterator[tuple[str, int]]:
        """A free name here and its folder's descriptor, to move into what stands at a path, in the block.

        The folder stays open for the next one of the same batch; see `let_go`.

        Args:
            batch_id: Whose folder.
            seq: Of the operation in it.
            entry: What stands at the path.
            size_bytes: What that takes on the disk.

        Raises:
            OSError: The disk refuses.
        """
        name = _name(seq, entry.state)
        record = encode_record(entry)
        with self._lock:
            # First, so that whatever a killed process leaves here can be told.
            held = self._noted(batch_id, _ITEM.pack(seq, len(record)) + record)
            yield name, held.fd
            self._count(batch_id, name, size_bytes)

    def let_go(self) -> None:
        """Close the folder that is held open from one thing to the next."""
        with self._lock:
            self._leave()

    def _noted(self, batch_id: str, item: bytes) -> _Held:
        """The open folder of a batch, whose index has one item more; where the disk is full, after making room."""
        while True:
            try:
                held = self._hold(batch_id)
                _append(held.index_fd, item)
                return held
            except OSError as exc:
                if code_of(exc) != "disk_full" or not self._give_up(batch_id):
                    raise

    def _give_up(self, keep: str) -> bool:
        """Give up the spare room, else the oldest batch but `keep`; False if there is nothing."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(_SPARE, dir_fd=self._stage_fd)
            return True
        oldest = next((batch for batch in self.batches() if batch != keep), "")
        if oldest:
            self._remove(oldest)
        return bool(oldest) and oldest not in self.batches()

    def _keep_spare(self) -> None:
        with contextlib.suppress(OSError):
            fd = os.open(_SPARE, _SPARE_FLAGS, 0o600, dir_fd=self._stage_fd)
            try:
                _append(fd, b"\xff" * _SPARE_BYTES)
            except OSError:
                os.unlink(_SPARE, dir_fd=self._stage_fd)
            finally:
                os.close(fd)

    def _hold(self, batch_id: str) -> _Held:
        held = self._held
        if held is not None and held.batch_id == batch_id and not held.is_gone:
            return held
        self._leave()
        with contextlib.suppress(FileExistsError):
            os.mkdir(batch_id, 0o700, dir_fd=self._fd)
        fd = os.open(batch_id, FOLDER_FLAGS, dir_fd=self._fd)
        try:
            held = self._held = _Held(batch_id, fd, os.open(_INDEX, _APPEND_FLAGS, 0o600, dir_fd=fd))
        except OSError:
            os.close(fd)
            raise
        return held

    def _leave(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            held.close()

    @contextlib.contextmanager
    def opened(self, batch_id: str, one: Trashed) -> Iterator[int]:
        """A descriptor of a file in the trash, open in the block.

        Raises:
            OSError: It is gone.
        """
        with self._folder(batch_id) as folder_fd:
            fd = os.open(_name(one.seq, one.entry.state), READ_FLAGS, dir_fd=folder_fd)
        try:
            yield fd
        finally:
            os.close(fd)

    def find(self, digest: bytes) -> int | None:
        """A descriptor of a file with this content, for the caller to close; None if there is none."""
        with self._lock:
            place = self._by_digest.get(digest)
            if place is None:
                return None
            try:
                with self._folder(place[0]) as folder_fd:
                    return os.open(place[1], READ_FLAGS, dir_fd=folder_fd)
            except OSError:
                del self._by_digest[digest]
                return None

    def prune(self, *, keep: str = "") -> None:
        """Remove what is too old, and the oldest of what is too much; the batch `keep` is spared for its size.

        Cheap when there is nothing to do: ages are looked at once an hour.
        """
        with self._lock:
            self._keep_spare()
            is_due = time.monotonic() - self._looked_at_s > _LOOK_S
            if not is_due and self._total_bytes <= self._max_bytes:
                return
            self._looked_at_s = time.monotonic()
            oldest = time.time() - self._max_age_s
            for batch in self.batches():
                if self._changed_at_s(batch) < oldest or (self._total_bytes > self._max_bytes and batch != keep):
                    self._remove(batch)

    def make_room(self) -> bool:
        """Remove the oldest batch's things; False if there is nothing to remove."""
        with self._lock:
            for batch in self.batches():
                self._remove(batch)
                return True
            return False

    def _changed_at_s(self, batch_id: str) -> float:
        try:
            return os.stat(batch_id, dir_fd=self._fd, follow_symlinks=False).st_mtime
        except OSError:
            return time.time()

    def _load(self, batch_id: str) -> None:
        with contextlib.suppress(OSError), self._folder(batch_id) as fd:
            for name in os.listdir(fd):
                with contextlib.suppress(OSError):
                    self._count(batch_id, name, bytes_on_disk(os.stat(name, dir_fd=fd, follow_symlinks=False)))

    def _count(self, batch_id: str, name: str, size_bytes: int) -> None:
        self._sizes[batch_id] = self._sizes.get(batch_id, 0) + size_bytes
        self._total_bytes += size_bytes
        if digest := _digest_of(name):
            self._by_digest[digest] = (batch_id, name)

    def _remove(self, batch_id: str) -> None:
        if self._held is not None and self._held.batch_id == batch_id:
            self._leave()
        self._total_bytes -= self._sizes.pop(batch_id, 0)
        with contextlib.suppress(OSError):
            with self._folder(batch_id) as fd:
                for name in os.listdir(fd):
                    os.unlink(name, dir_fd=fd)
                    if self._by_digest.get(digest := _digest_of(name)) == (batch_id, name):
                        del self._by_digest[digest]
            os.rmdir(batch_id, dir_fd=self._fd)

    @contextlib.contextmanager
    def _folder(self, batch_id: str) -> Iterator[int]:
        fd = os.open(batch_id, FOLDER_FLAGS, dir_fd=self._fd)
        try:
            yield fd
        finally:
            os.close(fd)


def _name(seq: int, state: State) -> str:
    return f"{seq}-{state.content.hex() if state.kind == 'file' else ''}"


def _append(fd: int, data: bytes) -> None:
    """Write all of it, or nothing: what comes behind half an item could not be told.

    Raises:
        OSError: The disk refuses.
    """
    start = os.fstat(fd).st_size
    try:
        if os.write(fd, data) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError:
        with contextlib.suppress(OSError):
            os.ftruncate(fd, start)
        raise


def _digest_of(name: str) -> bytes:
    """The digest a name ends in; empty for none."""
    try:
        return bytes.fromhex(name.partition("-")[2])
    except ValueError:
        return b""


def bytes_on_disk(found: os.stat_result) -> int:
    """What something takes on the disk; holes take nothing."""
    return found.st_blocks * 512


def _read(folder_fd: int, name: str) -> bytes:
    with os.fdopen(os.open(name, READ_FLAGS, dir_fd=folder_fd), "rb") as file:
        return file.read()


def _decoded(index: bytes) -> Iterator[Trashed]:
    """What the index names; a last line that a killed process left half written does not count."""
    at = 0
    while at + _ITEM.size <= len(index):
        seq, length = _ITEM.unpack_from(index, at)
        at += _ITEM.size
        with contextlib.suppress(BadRecord):
            for record in decode_records(index[at : at + length]):
                if isinstance(record, Entry):
                    yield Trashed(seq, record)
        at += length
