"""Which runsc is used: the very program `sbx local setup` settled on, told by its hash, else the system's."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from sbxtui.core.errors import RuntimeUnavailable
from sbxtui.localcloud.spec import write_private

POINTER_NAME = "runsc.json"
_PLACES = ("/usr/local/bin/runsc", "/usr/bin/runsc")
_AGAIN = "run `sbx local setup` again"

_hashes: dict[tuple[str, str], str] = {}


@dataclass(frozen=True, slots=True)
class _Pointer:
    """What was settled on. `stamp` is cheap to compare: while it is the same, so is taken to be the hash."""

    path: str
    source: str
    sha256: str
    stamp: str


def settle(copies_dir: Path, program: Path, source: str, sha256: str) -> None:
    """From now on use this program, as long as it is the same.

    Raises:
        RuntimeUnavailable: It is another than the one that had this hash.
        OSError: It cannot be read, or the folder not written.
    """
    stamp = _stamp(program)
    if digest_of(program) != sha256:
        raise RuntimeUnavailable(f"{program} was replaced meanwhile", hint=_AGAIN)
    pointer = _Pointer(str(program), source, sha256, stamp)
    write_private(copies_dir / POINTER_NAME, json.dumps(asdict(pointer)))


def find_runsc(copies_dir: Path) -> Path | None:
    """The one that was settled on if it is still there, else the system's.

    Raises:
        RuntimeUnavailable: Another program lies where the one that was settled on was.
    """
    pointer = _read(copies_dir)
    if pointer is not None and Path(pointer.path).is_file():
        if not _is_unchanged(pointer):
            raise RuntimeUnavailable(f"{pointer.path} changed since `sbx local setup` tried it: {_AGAIN}", hint=_AGAIN)
        return Path(pointer.path)
    return next((Path(place) for place in _PLACES if os.access(place, os.X_OK)), None)


def digest_of(program: Path) -> str:
    """SHA-256 of a file; read again only when it changed."""
    key = (str(program), _stamp(program))
    if key not in _hashes:
        with program.open("rb") as file:
            _hashes[key] = hashlib.file_digest(file, "sha256").hexdigest()
    return _hashes[key]


def _read(copies_dir: Path) -> _Pointer | None:
    try:
        told = json.loads((copies_dir / POINTER_NAME).read_text())
        return _Pointer(*(str(told.get(name, "")) for name in _Pointer.__slots__)) if told.get("path") else None
    except (OSError, ValueError, AttributeError):
        return None


def _is_unchanged(pointer: _Pointer) -> bool:
    try:
        program = Path(pointer.path)
        return _stamp(program) == pointer.stamp or digest_of(program) == pointer.sha256
    except OSError:
        return False


def _stamp(program: Path) -> str:
    """The time of the last change of the inode is in it: nobody can set that back."""
    info = program.stat()
    return f"{info.st_dev} {info.st_ino} {info.st_size} {info.st_mtime_ns} {info.st_ctime_ns}"
