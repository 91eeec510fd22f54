"""Large contents that come in pieces, and go on where they were cut off."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator

from blake3 import blake3

from sbxguest.tree.entry import new_digest
from sbxguest.tree.report import TreeError
from sbxguest.tree.root import READ_FLAGS
from sbxguest.tree.stage import Stage, copied, write_all

MAX_AGE_S = 24 * 3600.0
# What is whole and was not taken for so long was a file that changed meanwhile, more likely than not.
_UNCLAIMED_S = 600.0
_LOOK_S = 3600.0
_CHUNK_BYTES = 1024 * 1024
# What is not whole yet; and a link from a name that was made up to the content that had it.
_PART, _NAMED = ".part", ".is"
_OPEN_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


class Blobs:
    """The large contents of a stage, by their digests. Used from several threads.

    Args:
        stage: Where they are.
        make_room: Called when the disk is full and nothing here is in the way; says whether it is worth trying again.
    """

    def __init__(self, stage: Stage, make_room: Callable[[], bool]) -> None:
        self._stage = stage
        self._fd = stage.blobs_fd
        self._make_room_elsewhere = make_room
        self._lock = threading.Lock()
        # Held for a moment, and with no other lock of this module asked for under it: a writer may be in want of room.
        self._guard = threading.Lock()
        self._writers: dict[bytes, BlobWriter] = {}
        self._made_up: dict[str, list[str]] = {}
        self._looked_at_s = float("-inf")
        self._prune()

    def state(self, digest: bytes) -> tuple[int, bool]:
        """How many bytes are here, and whether that is all of it."""
        name = digest.hex()
        with contextlib.suppress(OSError):
            return self._size(name), True
        with contextlib.suppress(OSError):
            return self._size(name + _PART), False
        with contextlib.suppress(OSError):
            return self._size(os.readlink(name + _NAMED, dir_fd=self._fd)), True
        return 0, False

    def _size(self, name: str) -> int:
        return os.stat(name, dir_fd=self._fd, follow_symlinks=False).st_size

    def open(
        self,
        digest: bytes,
        *,
        offset: int,
        size_bytes: int,
        is_provisional: bool = False,
        is_sparse: bool = False,
    ) -> BlobWriter:
        """Take in more of a content; whoever was at it before is not listened to any more.

        Where `is_provisional`, `digest` is a name that the sender made up while it does not know the digest: when all
        of the content is here, it is named by what it is. What cannot fit is refused before it fills the disk, unless
        it `is_sparse` and nobody knows what it takes.

        Raises:
            TreeError: `bad_offset`: it does not go on there. OSError: The disk refuses.
        """
        with self._lock:
            self._prune()
            before = self._writers.get(digest)
            if before is not None:
                before.abort()
            with self._guard:
                here, is_complete = self.state(digest)
                if is_complete or offset != here or not here <= size_bytes:
                    raise TreeError("bad_offset", f"of this content, {here} bytes are here, not {offset}")
                fd = os.open(digest.hex() + _PART, _OPEN_FLAGS, 0o600, dir_fd=self._fd)
                writer = BlobWriter(fd, digest, size_bytes, self.make_room, before, is_provisional=is_provisional)
                self._writers[digest] = writer
            if not is_sparse and not self._has_room(size_bytes - here):
                writer.abort()
                self._remove(digest.hex() + _PART)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return writer

    def _has_room(self, size_bytes: int) -> bool:
        while (free := _free_bytes(self._fd)) is not None and free < size_bytes:
            if not self.make_room():
                return False
        return True

    def make_room(self) -> bool:
        """Give up the oldest of what nobody is sending or came back for, else something elsewhere; False for nothing.

        What is given up here can be sent again.
        """
        return self._drop_idle() or self._make_room_elsewhere()

    def _drop_idle(self) -> bool:
        with self._guard:
            idle = [(changed_at_s, name) for changed_at_s, name in self._all() if self._is_idle(name, changed_at_s)]
            if idle:
                self._remove(min(idle)[1])
            return bool(idle)

    def _is_idle(self, name: str, changed_at_s: float) -> bool:
        if name.endswith(_NAMED):
            return False
        if not name.endswith(_PART):
            return changed_at_s < time.time() - _UNCLAIMED_S
        writer = self._writers.get(bytes.fromhex(name.removesuffix(_PART)))
        return writer is None or not writer.is_open

    def _all(self) -> Iterator[tuple[float, str]]:
        """What is here, each with when it was last changed."""
        for name in os.listdir(self._fd):
            with contextlib.suppress(OSError):
                yield os.stat(name, dir_fd=self._fd, follow_symlinks=False).st_mtime, name

    def _remove(self, name: str) -> None:
        """Remove something, and the names that were made up for it."""
        for one in (name, *self._made_up.pop(name, ())):
            with contextlib.suppress(OSError):
                os.unlink(one, dir_fd=self._fd)

    def close(self, writer: BlobWriter) -> tuple[int, bool]:
        """End an upload, whole or cut; returns the state of its content.

        Raises:
            TreeError: All of it is here, and it is something else (`wrong_content`); it is gone then.
        """
        with self._lock:
            writer.abort()
            if writer.is_whole and self._writers.get(writer.digest) is writer:
                del self._writers[writer.digest]
                part, found = writer.digest.hex() + _PART, writer.hash.digest()
                if found != writer.digest and not writer.is_provisional:
                    os.unlink(part, dir_fd=self._fd)
                    raise TreeError("wrong_content", "a content is not the one that was announced")
                os.rename(part, found.hex(), src_dir_fd=self._fd, dst_dir_fd=self._fd)
                if found != writer.digest:
                    self._link(writer.digest.hex() + _NAMED, found.hex())
                return writer.here_bytes, True
        return self.state(writer.digest)

    def _link(self, made_up: str, name: str) -> None:
        """Let whoever asks by the name it made up know that all of it is here: it may not know the digest even then."""
        with contextlib.suppress(OSError):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(made_up, dir_fd=self._fd)
            os.symlink(name, made_up, dir_fd=self._fd)
            self._made_up.setdefault(name, []).append(made_up)

    def take(self, digest: bytes, *, is_last: bool) -> str:
        """Move a complete content to the stage's `incoming`, or copy it if it is needed again; returns its name there.

        Raises:
            TreeError: `content_missing`. OSError: The disk refuses; the content stays here.
        """
        name = digest.hex()
        try:
            if is_last:
                new = self._stage.new_name()
                os.rename(name, new, src_dir_fd=self._fd, dst_dir_fd=self._stage.incoming_fd)
                self._remove(name)
                return new
            source = os.open(name, READ_FLAGS, dir_fd=self._fd)
        except FileNotFoundError:
            raise TreeError("content_missing", "this content was not uploaded, or not to its end") from None
        try:
            return copied(source, self._stage, digest, os.fstat(source).st_size, self.make_room)
        finally:
            os.close(source)

    def _prune(self) -> None:
        """Forget what nobody came back for. Cheap when it is called again soon."""
        if time.monotonic() - self._looked_at_s < _LOOK_S:
            return
        self._looked_at_s = time.monotonic()
        oldest = time.time() - MAX_AGE_S
        for changed_at_s, name in self._all():
            if changed_at_s < oldest:
                self._remove(name)
            elif name.endswith(_NAMED):
                with contextlib.suppress(OSError):
                    self._made_up.setdefault(os.readlink(name, dir_fd=self._fd), []).append(name)


def _free_bytes(fd: int) -> int | None:
    """The room on the disk of a folder; None where that is not told."""
    try:
        found = os.fstatvfs(fd)
    except OSError:
        return None
    if not found.f_blocks:
        return None
    return (found.f_bavail if os.geteuid() else found.f_bfree) * found.f_frsize


class BlobWriter:
    """Writes the rest of one content. Made by `Blobs.open`, ended by `Blobs.close`.

    Args:
        fd: Of what is here of it; the writer closes it.
        digest: What all of it must have.
        size_bytes: Of all of it.
        make_room: As for `Blobs`.
        before: Who wrote what is here, if that is known: it needs not be read again then.
        is_provisional: The digest is a name only.
    """

    def __init__(
        self,
        fd: int,
        digest: bytes,
        size_bytes: int,
        make_room: Callable[[], bool],
        before: BlobWriter | None,
        *,
        is_provisional: bool = False,
    ) -> None:
        self.digest = digest
        self.is_provisional = is_provisional
        self._fd = fd
        self._size_bytes = size_bytes
        self._make_room = make_room
        self._lock = threading.Lock()
        here = os.lseek(fd, 0, os.SEEK_END)
        is_known = before is not None and before.here_bytes == here
        self._hash = before.hash.copy() if before is not None and is_known else _hash_of(fd, here)
        self.here_bytes: int = here

    @property
    def hash(self) -> blake3:
        """Over what is here."""
        return self._hash

    @property
    def is_open(self) -> bool:
        """Whether it takes more."""
        return self._fd >= 0

    @property
    def is_whole(self) -> bool:
        """Whether all of it is here."""
        return self.here_bytes == self._size_bytes

    def write(self, chunks: Iterable[bytes]) -> None:
        """Take the next bytes.

        Raises:
            TreeError: Somebody else has begun to send the same (`superseded`), or it is longer than was said
                (`wrong_content`). OSError: The disk refuses; what fitted is kept.
        """
        with self._lock:
            for chunk in chunks:
                if self._fd < 0:
                    raise TreeError("superseded", "the same content is being sent by another request")
                if self.here_bytes + len(chunk) > self._size_bytes:
                    raise TreeError("wrong_content", "a content is longer than was announced")
                write_all(self._fd, chunk, self._make_room)
                self._hash.update(chunk)
                self.here_bytes += len(chunk)

    def abort(self) -> None:
        """Take no more, and keep what is here. Safe to repeat."""
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1


def _hash_of(fd: int, size_bytes: int) -> blake3:
    digest = new_digest()
    at = 0
    while at < size_bytes and (chunk := os.pread(fd, _CHUNK_BYTES, at)):
        digest.update(chunk)
        at += len(chunk)
    return digest
