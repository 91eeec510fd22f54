"""The shape of the files service over a folder of this machine, for pilot tests; real guests have their own tests."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from sbxtui.core.errors import FileMissing, UsageError
from sbxtui.core.model import FileInfo, Registration


class LocalFiles:
    """Acts below `root` as if it were a sandbox's `/`."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def _at(self, path: str) -> Path:
        found = self._root / path.lstrip("/")
        if not os.path.lexists(found):
            raise FileMissing(f"no file at {path}")
        return found

    async def list(self, row: Registration, path: str) -> tuple[tuple[FileInfo, ...], bool]:
        return tuple(_info(one, f"{path.rstrip('/')}/{one.name}") for one in sorted(self._at(path).iterdir())), False

    async def peek(self, row: Registration, path: str, limit_bytes: int) -> tuple[bytes, FileInfo]:
        info = _info(self._at(path).resolve(), path)
        if info.kind != "file":
            raise UsageError(f"{path} is no regular file", hint="only regular files can be looked into")
        with self._at(path).open("rb") as file:
            return file.read(limit_bytes), info

    async def download(
        self, row: Registration, source: str, target: str, *, is_recursive: bool, on_bytes: Callable[[int], None]
    ) -> None:
        data = self._at(source).read_bytes()
        on_bytes(len(data))
        Path(target).write_bytes(data)

    async def upload(
        self, row: Registration, source: str, target: str, *, is_recursive: bool, on_bytes: Callable[[int], None]
    ) -> None:
        if not Path(source).exists():
            raise FileMissing(f"no file at {source} on this machine")
        on_bytes(Path(source).stat().st_size)
        shutil.copy(source, self._at(target))

    async def remove(self, row: Registration, path: str, *, is_recursive: bool) -> None:
        found = self._at(path)
        if found.is_dir() and is_recursive:
            shutil.rmtree(found)
        else:
            found.unlink()

    async def move(self, row: Registration, source: str, target: str) -> None:
        self._at(source).rename(self._root / target.lstrip("/"))

    async def make_folder(self, row: Registration, path: str) -> None:
        (self._root / path.lstrip("/")).mkdir(parents=True)


def _info(file: Path, path: str) -> FileInfo:
    facts = file.lstat()
    kind = "link" if file.is_symlink() else "dir" if file.is_dir() else "file" if file.is_file() else "other"
    target = os.readlink(file) if kind == "link" else ""
    return FileInfo(
        path, kind, facts.st_size, facts.st_mode & 0o7777, datetime.fromtimestamp(facts.st_mtime, UTC), target
    )
