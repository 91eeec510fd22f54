"""The folder of this machine: looking at it, and reading files from it that others may be writing."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterable, Mapping
from dataclasses import replace

from sbxguest.tree import Kind, Note, Record, State, TreeError
from sbxguest.tree.contents import Unstable, is_unchanged, open_file
from sbxguest.tree.root import Root, split
from sbxguest.tree.scan import ScanOptions, scan_by_lists
from sbxguest.tree.trash import bytes_on_disk
from sbxtui.core.errors import Conflict, FileMissing, UsageError
from sbxtui.services.sync.gauge import Gauge
from sbxtui.services.sync.headstart import HeadStart
from sbxtui.services.sync.ignores import FolderIgnores
from sbxtui.services.sync.model import Path

_CHUNK_BYTES = 1024 * 1024


class Folder:
    """An open folder of this machine. Close it.

    Attributes:
        root: It.
        ignores: Its rules, as they were last read.

    Raises:
        FileMissing: There is no folder at the path. UsageError: It is no folder.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self.root = _opened(path)
        self.ignores = FolderIgnores()

    def reopen(self) -> bool:
        """If another folder is at the path by now, that is meant from here on; False if none is."""
        if self.root.is_in_place:
            return True
        try:
            found = _opened(self._path)
        except (FileMissing, UsageError):
            return False
        self.root.close()
        self.root = found
        return True

    def close(self) -> None:
        """Close it."""
        self.root.close()

    @property
    def identity(self) -> str:
        """What tells it from another folder at the same path; empty when it is not at its path any more."""
        return self.root.identity if self.root.is_in_place else ""

    async def scan(self, paths: Iterable[Path], known: Mapping[Path, State], *, is_deep: bool = True) -> list[Record]:
        """What stands at `paths` and below; the empty path is everything.

        Args:
            paths: Where to look.
            known: What stood there before: what has the same stamp is not read again.
            is_deep: Also what is below them.

        Raises:
            Conflict: The folder was taken away meanwhile.
        """
        return await self._scan(paths, ScanOptions(texts=self.ignores.read, known=known, is_deep=is_deep))

    async def news(
        self,
        known: Mapping[Path, State],
        *,
        gauge: Gauge | None = None,
        doubted: Collection[Path] | None = None,
        head_start: HeadStart | None = None,
    ) -> tuple[list[Record], Collection[Path]]:
        """What is in the folder and not as it was before, and what is there no more; folders are told in any case.

        Args:
            known: What was there before.
            gauge: Tells how far it has come.
            doubted: Where something is said to have changed; None for anywhere. Elsewhere what had just changed when it
                was read is not read again before that can prove something.
            head_start: Takes what is found along at once.

        Raises:
            Conflict: The folder was taken away meanwhile.
        """
        unmet = dict(known)
        options = ScanOptions(texts=self.ignores.read, known=known, doubted=doubted, unmet=unmet)
        if gauge is not None:
            options = replace(options, check=gauge.check)
        if head_start is not None:
            options = replace(options, take=head_start.take, taker_of=head_start.large.taker_of)
        return await self._scan((b"",), options, gauge), unmet.keys()

    async def sizes(self) -> dict[Path, int]:
        """The length of each file; none is read."""
        records = await self._scan((b"",), ScanOptions(has_digests=False, texts=self.ignores.read))
        return sizes_in(records)

    async def _scan(self, paths: Iterable[Path], options: ScanOptions, gauge: Gauge | None = None) -> list[Record]:
        try:
            return await asyncio.to_thread(_listed, scan_by_lists(self.root, paths, options), gauge)
        except TreeError as exc:
            raise Conflict(f"the folder {exc.message}", details={"code": exc.code}) from exc
        except OSError as exc:
            raise Conflict(f"the folder {self.root.path} cannot be read: {exc.strerror or exc}") from exc

    async def pieces(
        self, path: Path, size_bytes: int, *, start: int = 0, may_end: bool = False
    ) -> AsyncIterator[bytes]:
        """The content of a file from `start` on, always up to `size_bytes`: what is missing by now comes as zeros.

        So the stream that promised that many keeps its word; the receiver finds another digest and drops it. With
        `may_end` it promised nothing, and ends as soon as the file is another one, or none.
        """
        left = size_bytes - start
        try:
            fd = await asyncio.to_thread(self._open, path)
        except (OSError, Unstable):
            fd = -1
        try:
            while left > 0:
                wanted = min(left, _CHUNK_BYTES)
                of = path if may_end else None
                piece = await asyncio.to_thread(self._piece, of, fd, wanted, size_bytes - left) if fd >= 0 else b""
                if may_end and not piece:
                    return
                yield piece or bytes(wanted)
                left -= len(piece) or wanted
        finally:
            if fd >= 0:
                os.close(fd)

    def _piece(self, path: Path | None, fd: int, size_bytes: int, offset: int) -> bytes:
        """The next piece of an open file; nothing if that is not the one at the path any more."""
        piece = _read_at(fd, size_bytes, offset)
        return piece if path is None or self._is_still(path, fd) else b""

    def _is_still(self, path: Path, fd: int) -> bool:
        """Whether an open file has its path still."""
        try:
            now = self._open(path)
        except (OSError, Unstable):
            return False
        try:
            return is_unchanged(os.fstat(fd), os.fstat(now))
        finally:
            os.close(now)

    def is_sparse(self, path: Path) -> bool:
        """Whether a file takes less room on the disk than it is long; also, where that is not known. Blocking."""
        try:
            fd = self._open(path)
        except (OSError, Unstable):
            return True
        try:
            found = os.fstat(fd)
        finally:
            os.close(fd)
        return bytes_on_disk(found) < found.st_size

    async def content(self, path: Path) -> AsyncGenerator[bytes, None]:
        """What a file holds now; nothing if it is not there."""
        try:
            fd = await asyncio.to_thread(self._open, path)
        except (OSError, Unstable):
            return
        try:
            offset = 0
            while piece := await asyncio.to_thread(_read_at, fd, _CHUNK_BYTES, offset):
                yield piece
                offset += len(piece)
        finally:
            os.close(fd)

    def _open(self, path: Path) -> int:
        folder, name = split(path)
        folder_fd = self.root.open_folder(folder)
        try:
            return open_file(name, folder_fd)[0]
        finally:
            os.close(folder_fd)


class SmallFiles:
    """Reads small files of a folder, one after the other. Blocking. Close it.

    The folder of the file that was read last is held open: whole folders come in order.
    """

    def __init__(self, folder: Folder) -> None:
        self._root = folder.root
        self._held: tuple[Path, int] = (b"", -1)

    def read(self, path: Path, size_bytes: int) -> bytes | None:
        """The content of a file; None if it has another length by now, or is none."""
        folder, name = split(path)
        try:
            fd = open_file(name, self._opened(folder))[0]
        except (OSError, Unstable):
            return None
        try:
            content = os.read(fd, size_bytes + 1)
        except OSError:
            return None
        finally:
            os.close(fd)
        return content if len(content) == size_bytes else None

    def close(self) -> None:
        """Let go of the folder."""
        path, fd = self._held
        if fd >= 0:
            os.close(fd)
        self._held = (path, -1)

    def _opened(self, path: Path) -> int:
        if self._held[1] < 0 or self._held[0] != path:
            self.close()
            self._held = (path, self._root.open_folder(path))
        return self._held[1]


def sizes_in(records: Iterable[Record]) -> dict[Path, int]:
    """The lengths of the files a listing names."""
    return {
        one.path: one.state.size_bytes for one in records if not isinstance(one, Note) and one.state.kind is Kind.FILE
    }


def _opened(path: str) -> Root:
    try:
        return Root(path)
    except TreeError as exc:
        kind = FileMissing if exc.code == "file_not_found" else UsageError
        raise kind(f"cannot sync the folder {exc.message}", hint="name a folder that is there") from exc


def _listed(lists: Iterable[list[Record]], gauge: Gauge | None = None) -> list[Record]:
    records: list[Record] = []
    for some in lists:
        records += some
        if gauge is not None:
            gauge.see(some)
    return records


def _read_at(fd: int, size_bytes: int, offset: int) -> bytes:
    try:
        return os.pread(fd, size_bytes, offset)
    except OSError:
        return b""
