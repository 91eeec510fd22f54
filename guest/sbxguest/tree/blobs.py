"""Large contents that come in pieces, and go on where they were cut off."""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterable

from sbxguest.tree.entry import new_digest
from sbxguest.tree.report import TreeError
from sbxguest.tree.root import READ_FLAGS
from sbxguest.tree.stage import Stage, copied, write_all

MAX_AGE_S = 24 * 3600.0
_CHUNK_BYTES = 1024 * 1024
_PART = ".part"
_OPEN_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


class Blobs:
    """The large contents of a stage, by their digests. Used from several threads.

    Args:
        stage: Where they are.
        make_room: Called when the disk is full; says whether it is worth trying again.
    """

    def __init__(self, stage: Stage, make_room: Callable[[], bool]) -> None:
        self._stage = stage
        self._fd = stage.blobs_fd
        self._make_room = make_room
        self._lock = threading.Lock()
        self._writers: dict[bytes, BlobWriter] = {}
        self._prune()

    def state(self, digest: bytes) -> tuple[int, bool]:
        """How many bytes are here, and whether that is all of it."""
        name = digest.hex()
        for candidate, is_complete in ((name, True), (name + _PART, False)):
            with contextlib.suppress(OSError):
                return os.stat(candidate, dir_fd=self._fd, follow_symlinks=False).st_size, is_complete
        return 0, False

    def open(self, digest: bytes, *, offset: int, size_bytes: int, is_provisional: bool = False) -> BlobWriter:
        """Take in more of a content; whoever was at it before is not listened to any more.

        Where `is_provisional`, `digest` is a name that the sender made up while it does not know the digest: when all
        of the content is here, it is named by what it is.

        Raises:
            TreeError: `bad_offset`: it does not go on there. OSError: The disk refuses.
        """
        with self._lock:
            before = self._writers.get(digest)
            if before is not None:
                before.abort()
            here, is_complete = self.state(digest)
            if is_complete or offset != here or not here <= size_bytes:
                raise TreeError("bad_offset", f"of this content, {here} bytes are here, not {offset}")
            fd = os.open(digest.hex() + _PART, _OPEN_FLAGS, 0o600, dir_fd=self._fd)
            writer = BlobWriter(fd, digest, size_bytes, self._make_room, before, is_provisional=is_provisional)
            self._writers[digest] = writer
            return writer

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
                return writer.here_bytes, True
        return self.state(writer.digest)

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
                return new
            source = os.open(name, READ_FLAGS, dir_fd=self._fd)
        except FileNotFoundError:
            raise TreeError("content_missing", "this content was not uploaded, or not to its end") from None
        try:
            return copied(source, self._stage, digest, os.fstat(source).st_size, self._make_room)
        finally:
            os.close(source)

    def _prune(self) -> None:
        """Forget what nobody came back for."""
        oldest = time.time() - MAX_AGE_S
        for name in os.listdir(self._fd):
            with contextlib.suppress(OSError):
                if os.stat(name, dir_fd=self._fd, follow_symlinks=False).st_mtime < oldest:
                    os.unlink(name, dir_fd=self._fd)


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
    def hash(self) -> hashlib._Hash:
        """Over what is here."""
        return self._hash

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


def _hash_of(fd: int, size_bytes: int) -> hashlib._Hash:
    digest = new_digest()
    at = 0
    while at < size_bytes and (chunk := os.pread(fd, _CHUNK_BYTES, at)):
        digest.update(chunk)
        at += len(chunk)
    return digest
