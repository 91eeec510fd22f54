"""Files of this machine that a copy reads or writes, as `cp` treats them: links, modes, devices and pipes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
import tempfile
from collections.abc import AsyncIterator, Callable
from functools import partial
from io import FileIO
from pathlib import Path

from sbxtui.core.errors import FileMissing, SbxError, UsageError
from sbxtui.core.threads import run_abandonable
from sbxtui.core.values import dataclass
from sbxtui.guest.files import GuestFiles
from sbxtui.guest.filewire import Download

CHUNK_BYTES = 1 << 20

OnBytes = Callable[[int], None]

_KINDS = {stat.S_IFIFO: "fifo", stat.S_IFSOCK: "socket", stat.S_IFCHR: "char", stat.S_IFBLK: "block"}
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_NOCTTY | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a copy goes: `found` is what is there, and `is_kept` when that is written into instead of replaced."""

    path: Path
    found: os.stat_result | None
    is_kept: bool = False

    @property
    def is_regular(self) -> bool:
        return self.found is None or stat.S_ISREG(self.found.st_mode)


def local_stat(source: Path) -> os.stat_result:
    """A file or folder that can be copied, links followed.

    Raises:
        FileMissing: Nothing is there.
        UsageError: It cannot be read, or reading might wait or never end: a device, a pipe, a socket.
    """
    try:
        info = source.stat()
    except FileNotFoundError as exc:
        raise FileMissing(f"no file at {source} on this machine") from exc
    except OSError as exc:
        raise UsageError(f"cannot read {source}: {exc.strerror or exc}") from exc
    if not stat.S_ISREG(info.st_mode) and not stat.S_ISDIR(info.st_mode):
        raise UsageError(f"{source}: is a {_kind(info)}, not a regular file", hint="`sbx fs write` takes our stdin")
    return info


async def read_local(source: Path, on_bytes: OnBytes) -> AsyncIterator[bytes]:
    """A file, piece by piece; one that a pipe took the place of after it was looked at is empty."""
    try:
        with contextlib.closing(FileIO(await asyncio.to_thread(os.open, source, _READ))) as file:
            while chunk := await asyncio.to_thread(file.read, CHUNK_BYTES):
                on_bytes(len(chunk))
                yield chunk
    except OSError as exc:
        raise UsageError(f"cannot read {source}: {exc.strerror or exc}") from exc


async def download_file(
    files: GuestFiles, source: str, target: Path, on_bytes: OnBytes, *, follows_links: bool
) -> None:
    """Write a file of the sandbox to a path of this machine.

    A new file gets its mode and time. One that is there keeps mode and owner and is replaced whole or not at all; a
    link stays, and what it leads to is replaced. What a replacement would break is written into: a file with more
    names, or of somebody else, a device, a pipe.

    Args:
        files: Of the sandbox.
        source: There.
        target: Here.
        on_bytes: Told the size of every piece that was written.
        follows_links: Else the file takes the place of what is there, of a link too, and nothing is written into.

    Raises:
        FileMissing: A folder or the source does not exist.
        UsageError: A folder or socket is in its place; without `follows_links` also a device or pipe.
        SbxError: It cannot be written.
    """
    try:
        place = _place_of(target, follows_links=follows_links)
        async with _open_kept(place) if place.is_kept else _open_beside(place) as handle, files.download(source) as it:
            if place.is_kept and place.is_regular:
                os.ftruncate(handle, 0)
            async for batch in batches(it.chunks):
                await _write_all(handle, batch)
                on_bytes(len(batch))
            if place.is_regular:
                _finish(handle, place, it)
    except OSError as exc:
        raise cannot_write(target, exc) from exc


def cannot_write(target: Path, exc: OSError) -> SbxError:
    """Why a path of this machine was not written."""
    if isinstance(exc, FileNotFoundError) and not target.parent.is_dir():
        return FileMissing(f"no folder {target.parent} on this machine", hint="make it first")
    return SbxError(f"cannot write {target}: {exc.strerror or exc}")


async def batches(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The same bytes in pieces of a megabyte: TLS hands out 16 KiB at a time, and each hop to a thread costs more."""
    batch = bytearray()
    async for chunk in chunks:
        batch += chunk
        if len(batch) >= CHUNK_BYTES:
            yield bytes(batch)
            batch.clear()
    if batch:
        yield bytes(batch)


def _place_of(target: Path, *, follows_links: bool) -> _Place:
    try:
        found = target.stat(follow_symlinks=follows_links)
    except FileNotFoundError:
        return _Place(target.resolve() if follows_links and target.is_symlink() else target, None)
    if stat.S_ISDIR(found.st_mode):
        raise UsageError(f"cannot write {target}: a folder is there")
    if stat.S_ISREG(found.st_mode):
        if not follows_links:
            return _Place(target, found)
        is_ours = os.geteuid() in (0, found.st_uid)
        return _Place(_followed(target), found, is_kept=found.st_nlink > 1 or not is_ours)
    if stat.S_ISLNK(found.st_mode):
        return _Place(target, None)
    if stat.S_ISSOCK(found.st_mode) or not follows_links:
        raise UsageError(f"cannot write {target}: is a {_kind(found)}, not a regular file")
    # By the name it was given: what `/dev/stdout` leads to has no other that can be opened.
    return _Place(target, found, is_kept=True)


def _followed(target: Path) -> Path:
    return target.resolve() if target.is_symlink() else target


def _kind(info: os.stat_result) -> str:
    return _KINDS.get(stat.S_IFMT(info.st_mode), "special file")


@contextlib.asynccontextmanager
async def _open_kept(place: _Place) -> AsyncIterator[int]:
    # A pipe is opened when somebody reads it, and Ctrl-C must not wait for that.
    handle = await run_abandonable(lambda: os.open(place.path, _WRITE))
    try:
        yield handle
    finally:
        os.close(handle)


@contextlib.asynccontextmanager
async def _open_beside(place: _Place) -> AsyncIterator[int]:
    """A file that takes the place when all went well, so that a cut leaves the old one."""
    handle, temporary = tempfile.mkstemp(dir=place.path.parent, prefix=f".{place.path.name[:100]}.")
    try:
        try:
            yield handle
        finally:
            os.close(handle)
        Path(temporary).replace(place.path)
    finally:
        Path(temporary).unlink(missing_ok=True)


async def _write_all(handle: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        # One call at a time: a thread that is left behind must not go on to a number that means another file by then.
        rest = rest[await run_abandonable(partial(os.write, handle, rest)) :]


def _finish(handle: int, place: _Place, download: Download) -> None:
    if not place.is_kept:
        if place.found is not None:
            with contextlib.suppress(PermissionError):
                os.fchown(handle, place.found.st_uid, place.found.st_gid)
        # A sandbox must not plant a program that runs as its reader: setuid, setgid and sticky stay behind.
        os.fchmod(handle, (download.mode if place.found is None else place.found.st_mode) & 0o777)
    with contextlib.suppress(PermissionError):
        os.utime(handle, ns=(download.mtime_ns, download.mtime_ns))
