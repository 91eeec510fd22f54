"""The zip an image is made of: unpacked where nothing in it can reach beyond its folder, or fill the disk."""

from __future__ import annotations

import stat
import zipfile
from pathlib import Path, PurePosixPath

MAX_FILES = 20_000
MAX_BYTES = 2 << 30


class BadArchive(ValueError):
    """It is no archive that is unpacked here."""


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a zip into an empty folder. Blocking. Modes are kept; of links only those that stay inside.

    Raises:
        BadArchive: It is no zip, is damaged, or holds a path that leads out of it, or too much.
        OSError: The disk is full.
    """
    try:
        with zipfile.ZipFile(archive) as opened:
            entries = opened.infolist()
            if len(entries) > MAX_FILES or sum(entry.file_size for entry in entries) > MAX_BYTES:
                raise BadArchive(f"it holds more than {MAX_FILES} files or {MAX_BYTES >> 20} MiB")
            for entry in entries:
                _unpack_one(opened, entry, folder)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError) as exc:
        raise BadArchive(f"it is no readable zip: {exc}") from exc


def _unpack_one(opened: zipfile.ZipFile, entry: zipfile.ZipInfo, folder: Path) -> None:
    path = PurePosixPath(entry.filename)
    if path.is_absolute() or ".." in path.parts or "\\" in entry.filename:
        raise BadArchive(f"{entry.filename!r} leads out of the archive")
    target = folder / path
    mode = entry.external_attr >> 16
    if entry.is_dir():
        target.mkdir(parents=True, exist_ok=True)
        return
    if any(parent.is_symlink() for parent in target.parents if folder in parent.parents):
        raise BadArchive(f"{entry.filename!r} is behind a link")
    target.parent.mkdir(parents=True, exist_ok=True)
    if stat.S_ISLNK(mode):
        _link(opened.read(entry).decode("utf-8", "surrogateescape"), target, folder)
        return
    with opened.open(entry) as source, target.open("wb") as sink:
        while piece := source.read(1 << 20):
            sink.write(piece)
    target.chmod(mode & 0o777 or 0o644)


def _link(words: str, target: Path, folder: Path) -> None:
    if not (target.parent / words).resolve().is_relative_to(folder.resolve()):
        raise BadArchive(f"the link {target.name!r} leads out of the archive")
    target.symlink_to(words)
