"""Files between this machine and a sandbox, by the rules of `cp`."""

from __future__ import annotations

import asyncio
import contextlib
import stat
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path, PurePosixPath
from time import monotonic

from sbxguest.tree import TreeReport
from sbxtui.core.errors import FileMissing, SbxError, UsageError
from sbxtui.core.model import FileInfo, Registration
from sbxtui.core.paths import is_folder
from sbxtui.guest.files import GuestFiles
from sbxtui.services.guests import Guests
from sbxtui.services.localfiles import OnBytes, batches, cannot_write, download_file, local_stat, read_local
from sbxtui.store.events import Events

# What is meant where no path is named.
_WORK_FOLDER = "the work folder"


class Files:
    """Copies files in and out of sandboxes of one context."""

    def __init__(self, guests: Guests, events: Events, actor: str) -> None:
        self._guests = guests
        self._events = events
        self._actor = actor

    async def upload(
        self, row: Registration, source: str, target: str, *, is_recursive: bool, on_bytes: OnBytes = lambda count: None
    ) -> TreeReport | None:
        """Copy a local file or folder into the sandbox; modes and times are kept.

        Args:
            row: Which sandbox.
            source: What to copy, on this machine. A folder ending in `/.` means its content.
            target: Where. An existing folder takes the source under its own name.
            is_recursive: Whether folders may be copied.
            on_bytes: Told the size of every piece of a file that was read.

        Returns:
            For a folder, what was copied and what was left out; None for a file.

        Raises:
            FileMissing: The source or the target's folder does not exist.
            UsageError: The source is a folder and `is_recursive` is not set, or cannot be read.
        """
        local = Path(source)
        info = local_stat(local)
        began_s = monotonic()
        async with self._guests.files(row) as files:
            if stat.S_ISDIR(info.st_mode):
                _check_recursive(source, is_recursive)
                # A folder is made where a slash promises one; a file never is.
                wanted = target.rstrip("/") or target
                place = wanted if _means_content(source) else await _place_in(files, wanted, local.resolve().name)
                report = await files.upload_tree(local, place)
                await self._note("files.upload", row, began_s, place)
                return report
            place = await _place_in(files, target, local.name)
            await files.upload(
                place,
                read_local(local, on_bytes),
                size_bytes=info.st_size,
                mode=stat.S_IMODE(info.st_mode),
                mtime_ns=info.st_mtime_ns,
            )
        await self._note("files.upload", row, began_s, place)
        return None

    async def download(
        self,
        row: Registration,
        source: str,
        target: str,
        *,
        is_recursive: bool,
        on_bytes: OnBytes = lambda count: None,
        follows_links: bool = True,
    ) -> TreeReport | None:
        """Copy a file or folder of the sandbox to this machine; of a file that is there see `download_file`.

        The sandbox is not trusted: nothing outside `target` is written.

        Raises and returns as `upload`.
        """
        async with self._guests.files(row) as files:
            info = await files.stat(source or ".", follow=True)
            # The name the person wrote, never one the sandbox tells: that could be `.bashrc`, or lead elsewhere.
            name = PurePosixPath(source).name
            if name == "..":
                raise UsageError(f"{source} names no file", hint="write the path without `..` at its end")
            if info.kind != "dir":
                place = _local_place(target, name)
                await download_file(files, source, place, on_bytes, follows_links=follows_links)
                return None
            _check_recursive(source, is_recursive)
            folder = Path(target) if _means_content(source) else _local_place(target, name)
            await asyncio.to_thread(_make_folder, folder)
            return await files.download_tree(source or ".", folder)

    async def write(
        self,
        row: Registration,
        path: str,
        chunks: AsyncIterator[bytes],
        *,
        mode: int | None = None,
        has_parents: bool = False,
        if_sha256: str = "",
    ) -> int:
        """Replace a file of the sandbox with a stream; returns its size. Options are those of `GuestFiles.upload`."""
        began_s = monotonic()
        async with self._guests.files(row) as files:
            size_bytes = await files.upload(path, chunks, mode=mode, has_parents=has_parents, if_sha256=if_sha256)
        await self._note("files.write", row, began_s, path)
        return size_bytes

    async def read(self, row: Registration, path: str, on_chunk: Callable[[bytes], None]) -> None:
        """Pass a file of the sandbox on, piece by piece; `on_chunk` may block, as a slow pipe does."""
        async with self._guests.files(row) as files, files.download(path) as download:
            async for batch in batches(download.chunks):
                await asyncio.to_thread(on_chunk, batch)

    async def peek(self, row: Registration, path: str, limit_bytes: int, *, start: int = 0) -> tuple[bytes, FileInfo]:
        """At most `limit_bytes` of a file from `start` on, and what it is; what a link points to is read.

        Raises:
            UsageError: It is no regular file, so that reading might never end.
        """
        async with self._guests.files(row) as files:
            info = await files.stat(path, follow=True)
            if info.kind != "file":
                raise UsageError(f"{path} is no regular file", hint="only regular files can be looked into")
            head = bytearray()
            if info.size_bytes > start:
                length = min(limit_bytes, info.size_bytes - start)
                async with files.download(path, start=start, length=length) as download:
                    async for chunk in download.chunks:
                        head += chunk
            return bytes(head[:limit_bytes]), info

    async def list(self, row: Registration, path: str) -> tuple[tuple[FileInfo, ...], bool]:
        """Entries of a folder, and whether there are more than shown."""
        async with self._guests.files(row) as files:
            listing = await files.list(path or ".")
        return listing.entries, listing.is_truncated

    async def stat(self, row: Registration, path: str) -> FileInfo:
        """What is at a path; a link itself."""
        async with self._guests.files(row) as files:
            return await files.stat(path)

    async def make_folder(self, row: Registration, path: str) -> None:
        """Make a folder and those above it; an existing one is fine."""
        began_s = monotonic()
        async with self._guests.files(row) as files:
            await files.make_directory(path, has_parents=True)
        await self._note("files.mkdir", row, began_s, path)

    async def remove(self, row: Registration, path: str, *, is_recursive: bool) -> None:
        """Remove a file, or with `is_recursive` a folder."""
        began_s = monotonic()
        async with self._guests.files(row) as files:
            with _naming_recursive(path, "remove"):
                await files.remove(path, recursive=is_recursive)
        await self._note("files.rm", row, began_s, path)

    async def move(self, row: Registration, source: str, target: str) -> None:
        """Move inside the sandbox; an existing folder takes the source under its own name."""
        began_s = monotonic()
        async with self._guests.files(row) as files:
            place = await _place_in(files, target, PurePosixPath(source).name)
            await files.move(source, place)
        await self._note("files.mv", row, began_s, place, source)

    async def copy(self, row: Registration, source: str, target: str, *, is_recursive: bool) -> tuple[str, ...]:
        """Copy inside the sandbox; returns special files that were left out."""
        began_s = monotonic()
        async with self._guests.files(row) as files:
            place = await _place_in(files, target, PurePosixPath(source).name)
            with _naming_recursive(source, "copy"):
                left_out = await files.copy(source, place, recursive=is_recursive)
        await self._note("files.cp", row, began_s, place, source)
        return left_out

    async def _note(self, kind: str, row: Registration, began_s: float, path: str, source: str = "") -> None:
        data: dict[str, object] = {"path": path.encode("utf-8", "replace").decode()}
        data["took_s"] = round(monotonic() - began_s, 3)
        if source:
            data["from"] = source.encode("utf-8", "replace").decode()
        await asyncio.to_thread(
            self._events.record, context=row.context, kind=kind, subject=row.name, actor=self._actor, data=data
        )


def _check_recursive(source: str, is_recursive: bool) -> None:
    if not is_recursive:
        raise UsageError(f"{source or _WORK_FOLDER} is a folder", hint="add -r to copy folders")


@contextlib.contextmanager
def _naming_recursive(path: str, verb: str) -> Iterator[None]:
    """What the guest says of a folder, in the words of `_check_recursive`."""
    try:
        yield
    except SbxError as exc:
        if exc.details.get("guest_code") != "is_a_directory":
            raise
        raise UsageError(f"{path} is a folder", hint=f"add -r to {verb} folders", details=exc.details) from exc


def _means_content(source: str) -> bool:
    return source.rpartition("/")[2] == "." or not PurePosixPath(source).name


async def _place_in(files: GuestFiles, target: str, name: str) -> str:
    """Where `name` goes when it is copied to `target`: into it if that is a folder, else exactly there."""
    try:
        info = await files.stat(target or ".", follow=True)
    except FileMissing:
        if target.endswith("/"):
            raise
        return target
    return str(PurePosixPath(target or ".") / name) if info.kind == "dir" else target


def _local_place(target: str, name: str) -> Path:
    # A trailing slash promises a folder: joining makes a missing one fail instead of becoming a file.
    return Path(target) / name if is_folder(Path(target)) or target.endswith("/") else Path(target)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(exist_ok=True)
    except OSError as exc:
        raise cannot_write(folder, exc) from exc
