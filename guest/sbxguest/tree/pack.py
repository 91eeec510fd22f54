"""A folder as a tar stream (pax), in bounded memory."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import tarfile
from collections.abc import Generator, Iterator

from sbxguest.tree.report import LEFT_OUT_KEY, MAX_PROBLEMS, TEMP_PREFIX, Problem, TreeError, code_of, shown

_BLOCK_BYTES = 512
_READ_CHUNK_BYTES = 512 * 1024
_PIECE_BYTES = 256 * 1024
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def pack(root: str) -> Generator[bytes, None, None]:
    """Yield a tar stream of what is below `root`, in pieces of about 256 KiB.

    Links are packed as links. Sockets, FIFOs, devices and what cannot be read are left out, and named at the end in a
    global pax record that `Unpacker` reports and other programs skip. Hard links become separate files.

    Raises:
        TreeError: `root` is no readable folder, or a file shrank while it was read: the stream is of no use then.
    """
    held: list[bytes] = []
    held_bytes = 0
    for piece in _pieces(root):
        held.append(piece)
        held_bytes += len(piece)
        if held_bytes >= _PIECE_BYTES:
            yield b"".join(held)
            held.clear()
            held_bytes = 0
    yield b"".join(held)


def _pieces(root: str) -> Iterator[bytes]:
    left_out: list[Problem] = []
    pending = [""]
    while pending:
        folder = pending.pop()
        try:
            with os.scandir(os.path.join(root, folder)) as children:
                for child in children:
                    name = os.path.join(folder, child.name)
                    yield from _member(child.path, name, pending, left_out)
        except OSError as exc:
            if not folder:
                raise TreeError(code_of(exc), f"{shown(root)}: {os.strerror(exc.errno or 0)}") from exc
            left_out.append(Problem(folder, code_of(exc)))
    if left_out:
        yield _left_out_record(left_out)
    yield bytes(2 * _BLOCK_BYTES)


def _member(path: str, name: str, pending: list[str], left_out: list[Problem]) -> Iterator[bytes]:
    if os.path.basename(name).startswith(TEMP_PREFIX):
        return
    try:
        found = os.lstat(path)
        if stat.S_ISDIR(found.st_mode):
            pending.append(name)
            yield _head(name + "/", found, tarfile.DIRTYPE)
        elif stat.S_ISLNK(found.st_mode):
            yield _head(name, found, tarfile.SYMTYPE, target=os.readlink(path))
        elif stat.S_ISREG(found.st_mode):
            yield from _file(path, name)
        else:
            left_out.append(Problem(name, "special_file"))
    except FileNotFoundError:
        return
    except OSError as exc:
        left_out.append(Problem(name, code_of(exc)))


def _file(path: str, name: str) -> Iterator[bytes]:
    fd = os.open(path, _READ_FLAGS)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            return
        # Read before the head goes out: an error here only leaves the file out, and the kernel's own files, whose
        # size is none or a guess, have the size of what was read.
        chunk = _begin_of(fd, found.st_size)
        size = found.st_size if len(chunk) == _READ_CHUNK_BYTES and found.st_size else len(chunk)
        yield _head(name, found, tarfile.REGTYPE, size=size)
        left = size
        while left:
            if not chunk:
                raise TreeError("changed", f"{shown(name)}: became shorter while it was read")
            left -= len(chunk)
            yield chunk
            with _cut_short(name):
                chunk = os.read(fd, min(_READ_CHUNK_BYTES, left))
        yield bytes(-size % _BLOCK_BYTES)
    finally:
        os.close(fd)


def _begin_of(fd: int, size: int) -> bytes:
    """The first chunk of a file, or all of it: no more than its size, where it has one."""
    wanted = min(_READ_CHUNK_BYTES, size) or _READ_CHUNK_BYTES
    chunk = os.read(fd, wanted)
    while 0 < len(chunk) < wanted and (more := os.read(fd, wanted - len(chunk))):
        chunk += more
    return chunk


@contextlib.contextmanager
def _cut_short(name: str) -> Iterator[None]:
    """After a head has promised so many bytes, a failed read can only end the stream."""
    try:
        yield
    except OSError as exc:
        raise TreeError(code_of(exc), f"{shown(name)}: {os.strerror(exc.errno or 0)}") from exc


def _head(name: str, found: os.stat_result, kind: bytes, *, target: str = "", size: int = 0) -> bytes:
    info = tarfile.TarInfo(name)
    info.type = kind
    info.size = size
    info.mode = stat.S_IMODE(found.st_mode)
    info.linkname = target
    seconds, nanos = divmod(found.st_mtime_ns, 1_000_000_000)
    info.mtime = max(0, seconds)
    if nanos:
        # The field of the plain head holds whole seconds; only a text record is exact to the nanosecond.
        info.pax_headers = {"mtime": f"{seconds}.{nanos:09d}"}
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def _left_out_record(left_out: list[Problem]) -> bytes:
    named = [[problem.path, problem.code] for problem in left_out[:MAX_PROBLEMS]]
    value = json.dumps({"count": len(left_out), "named": named})
    return tarfile.TarInfo.create_pax_global_header({LEFT_OUT_KEY: value})
