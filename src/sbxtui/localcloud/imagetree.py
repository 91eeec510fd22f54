"""Immutable copies of the guest and what it imports, named by their content and shared by sandboxes.

A running sandbox keeps the copy it was started with, whatever happens to the installed package. A copy is in use
while some keeper holds a shared lock on it (`hold`).
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import json
import marshal
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType

from sbxtui.core.errors import RuntimeUnavailable

# The standard library has it since then.
_ZSTD = () if sys.version_info >= (3, 14) else ("backports.zstd",)
REQUIRED = ("sbxguest", "uvicorn", "httptools", "websockets", "blake3", *_ZSTD, "click", "h11")
OPTIONAL = ("isal",)
_LAYOUT = "3"
_YOUNG_S = 3600.0
# The launcher has its own name in the tree: the shell loop and the init in it are told apart from jobs by these paths.
BOOT_NAME = "sbxboot.py"
# The flags of a compiled file, see PEP 552.
_UNCHECKED_HASH = (1).to_bytes(4, "little")
_BOOT_SOURCE = Path(__file__).with_name("runtimes") / "boot_source.py"


@dataclass(frozen=True, slots=True)
class ImageTree:
    """A finished tree; every file in it is read-only and readable by all."""

    path: Path


def ensure_image_tree(parent: Path) -> ImageTree:
    """The tree of the guest installed now, made if it is new. Blocking: call it in a thread.

    A process looks at what is installed once: an upgrade under its feet must not mix two versions.

    Args:
        parent: Folder of all trees; made (0711) if missing. A dropped uid must be able to traverse to it.

    Raises:
        RuntimeUnavailable: A package of the guest is not installed.
        OSError: `parent` cannot be written.
    """
    known = _made.get(parent)
    if known is not None and known.path.is_dir():
        os.utime(known.path)
        return known
    tree = _made[parent] = _find_or_build(parent)
    return tree


_made: dict[Path, ImageTree] = {}


def _find_or_build(parent: Path) -> ImageTree:
    parent.mkdir(parents=True, exist_ok=True)
    parent.chmod(0o711)
    sources = _package_dirs()
    fingerprint = _fingerprint(sources)
    index = parent / "index" / fingerprint
    with contextlib.suppress(OSError):
        known = parent / index.read_text()
        if known.is_dir():
            os.utime(known)
            return ImageTree(known)
    tree = _build(parent, sources)
    index.parent.mkdir(mode=0o700, exist_ok=True)
    temporary = index.with_name(f".{fingerprint}.{os.getpid()}")
    temporary.write_text(tree.path.name)
    temporary.replace(index)
    return tree


def prune_image_trees(parent: Path, *, young_s: float = _YOUNG_S) -> list[Path]:
    """Remove trees (and half-made ones) nobody holds or asked for in the last `young_s` seconds; returns them."""
    removed: list[Path] = []
    for tree in _trees(parent):
        with contextlib.suppress(OSError):
            if time.time() - tree.stat().st_mtime < young_s:
                continue
            descriptor = os.open(tree, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(tree)
                removed.append(tree)
            finally:
                os.close(descriptor)
    return removed


def _trees(parent: Path) -> list[Path]:
    with contextlib.suppress(OSError):
        return [entry for entry in parent.iterdir() if entry.name.startswith(("tree-", ".building-"))]
    return []


def _package_dirs() -> dict[str, Path]:
    found: dict[str, Path] = {}
    for name in (*REQUIRED, *OPTIONAL):
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations:
            found[name] = Path(next(iter(spec.submodule_search_locations)))
        elif name in REQUIRED:
            raise RuntimeUnavailable(f"the guest's package `{name}` is not installed", hint="reinstall sbxtui")
    return found


def _files(source: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(source):
        folders[:] = sorted(name for name in folders if name not in ("__pycache__", "tests"))
        for name in sorted(names):
            if not name.endswith((".pyc", ".c", ".pyx", ".pxd", ".pyi", ".h")):
                yield Path(folder) / name


def _fingerprint(sources: dict[str, Path]) -> str:
    """Names the installed files by size and time, which is quick; the tree itself is named by content."""
    seen: list[object] = [_LAYOUT, sys.implementation.cache_tag, _BOOT_SOURCE.stat().st_mtime_ns]
    for name, source in sources.items():
        for file in _files(source):
            info = file.stat()
            seen.append((name, str(file), info.st_size, info.st_mtime_ns))
    return hashlib.sha256(json.dumps(seen).encode()).hexdigest()[:32]


def _build(parent: Path, sources: dict[str, Path]) -> ImageTree:
    building = Path(tempfile.mkdtemp(dir=parent, prefix=".building-"))
    try:
        shutil.copyfile(_BOOT_SOURCE, building / BOOT_NAME)
        compiled = {BOOT_NAME: _compiled(_BOOT_SOURCE, BOOT_NAME)}
        for name, source in sources.items():
            for file in _files(source):
                target = building.joinpath(*name.split(".")) / file.relative_to(source)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, target)
                if file.suffix == ".py":
                    shown = str(target.relative_to(building))
                    compiled[shown] = _compiled(file, shown)
        digest = _content_hash(building)
        _write_compiled(building, compiled)
        # Files are read-only, and those that say what runs them may be run; folders stay removable by their owner.
        # Inside a sandbox all of it is mounted read-only.
        for folder, _, names in os.walk(building):
            Path(folder).chmod(0o755)
            for name in names:
                file = Path(folder) / name
                file.chmod(0o555 if file.suffix == ".py" and file.read_bytes()[:2] == b"#!" else 0o444)
        final = parent / f"tree-{digest}"
        with contextlib.suppress(OSError):
            # Refused when another process was first: a full folder is never replaced.
            building.rename(final)
        return ImageTree(final)
    finally:
        shutil.rmtree(building, ignore_errors=True)


def _content_hash(root: Path) -> str:
    digest = hashlib.sha256(f"{_LAYOUT} {sys.implementation.cache_tag}".encode())
    for file in sorted(path for path in root.rglob("*") if path.is_file()):
        content = file.read_bytes()
        digest.update(f"\0{file.relative_to(root)}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()[:24]


def _compiled(source: Path, shown: str) -> CodeType | None:
    """The code of an installed module as the tree's own; None for what is no Python of this version.

    Python has mostly compiled it already, and to take that is ten times as quick as to compile the copy.
    """
    loader = SourceFileLoader(shown, str(source))
    try:
        code = loader.get_code(shown)
    except (SyntaxError, ValueError):
        return None
    return code and _renamed(code, f"/opt/sbx/guest/{shown}")


def _renamed(code: CodeType, file: str) -> CodeType:
    inner = (_renamed(part, file) if isinstance(part, CodeType) else part for part in code.co_consts)
    return code.replace(co_filename=file, co_consts=tuple(inner))


def _write_compiled(root: Path, compiled: Mapping[str, CodeType | None]) -> None:
    for name, code in compiled.items():
        if code is None:
            continue
        file = Path(importlib.util.cache_from_source(str(root / name)))
        file.parent.mkdir(exist_ok=True)
        # By hash and unchecked: the tree never changes, and times would not survive a copy.
        source_hash = importlib.util.source_hash((root / name).read_bytes())
        file.write_bytes(importlib.util.MAGIC_NUMBER + _UNCHECKED_HASH + source_hash + marshal.dumps(code))
