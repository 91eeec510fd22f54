"""The unpacked archive of a build: which of its files a COPY means, and those as one tar and as one hash."""

from __future__ import annotations

import hashlib
import io
import posixpath
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sbxtui.localcloud.images.dockerfile import DockerfileError
from sbxtui.localcloud.images.recipe import Copy

_MAX_TAR_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Packed:
    """What goes into a sandbox at once: a tar to unpack below `folder`, and the hash of names, modes and contents."""

    folder: str
    tar: bytes
    digest: str


def pack(step: Copy, context: Path) -> Packed:
    """The files of a step. Blocking. Owners and times are nobody's.

    Raises:
        DockerfileError: A source is not there, leads out of the archive, or is too large.
    """
    rows = list(_rows(step, context))
    if sum(path.lstat().st_size for _, path in rows) > _MAX_TAR_BYTES:
        raise DockerfileError(f"line {step.line}: more than {_MAX_TAR_BYTES >> 20} MiB in one COPY")
    folder = step.target.rstrip("/") or "/" if step.target.endswith("/") or _is_folder(step, context) else ""
    folder = folder or posixpath.dirname(step.target)
    sink, digest = io.BytesIO(), hashlib.sha256(folder.encode())
    with tarfile.open(fileobj=sink, mode="w") as tar:
        for name, path in sorted(rows):
            entry = tar.gettarinfo(path, name)
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = ""
            entry.mtime = 0
            if step.mode:
                entry.mode = int(step.mode, 8)
            content = path.read_bytes() if entry.isreg() else b""
            digest.update(f"{name}\0{entry.mode:o}\0{entry.linkname}\0{len(content)}\0".encode())
            digest.update(content)
            tar.addfile(entry, io.BytesIO(content) if entry.isreg() else None)
    return Packed(folder, sink.getvalue(), digest.hexdigest())


def _rows(step: Copy, context: Path) -> Iterator[tuple[str, Path]]:
    for source in step.sources:
        for path in _matching(source, context, step.line):
            if path.is_dir() and not path.is_symlink():
                # As with Docker, a folder stands for what is in it.
                for inner in sorted(path.rglob("*")):
                    yield inner.relative_to(path).as_posix(), inner
            else:
                yield _name_of(step, path), path


def _name_of(step: Copy, path: Path) -> str:
    return path.name if step.target.endswith("/") else posixpath.basename(step.target)


def _is_folder(step: Copy, context: Path) -> bool:
    return any(path.is_dir() for source in step.sources for path in _matching(source, context, step.line))


def _matching(source: str, context: Path, line: int) -> list[Path]:
    name = posixpath.normpath(source.lstrip("/")) if source.lstrip("/") else "."
    if name.startswith(".."):
        raise DockerfileError(f"line {line}: {source} leads out of the archive")
    found = [context] if name == "." else sorted(context.glob(name))
    if not found:
        raise DockerfileError(f"line {line}: {source} is not in the archive")
    return found
