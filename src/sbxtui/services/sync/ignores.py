"""What a sync leaves out: defaults that everybody can see, then what the folder itself says."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterable, Iterator, Sequence

from sbxguest.tree import Kind, Note, Record
from sbxguest.tree.ignore import IGNORE_FILES, RuleTable, texts_of
from sbxguest.tree.root import OWN_PREFIXES, split

# Weaker than anything a `.gitignore` or `.sbxignore` says: `!node_modules/` there brings it back. `.git` stays out.
DEFAULTS = b"""\
node_modules/
__pycache__/
*.pyc
.venv/
venv/
.mypy_cache/
.pytest_cache/
.ruff_cache/
.tox/
.DS_Store
*.swp
*~
4913
.#*
___jb_*
"""
_CARGO_FILE, _CARGO = b"Cargo.toml", b"/target/\n"


class FolderIgnores:
    """The rules of a folder of this machine, read as it is looked at.

    Attributes:
        texts: What was read, by folder: the other side is looked at with the same.
    """

    def __init__(self) -> None:
        self.texts: dict[bytes, tuple[bytes, ...]] = {}

    def read(self, folder: bytes, folder_fd: int, names: Collection[bytes] | None = None) -> Sequence[bytes]:
        """The texts that hold in a folder, the weakest first.

        Raises:
            OSError: One cannot be read.
        """
        texts = texts_in(folder, folder_fd, names)
        if texts:
            self.texts[folder] = texts
        else:
            self.texts.pop(folder, None)
        return texts


def texts_in(folder: bytes, folder_fd: int, names: Collection[bytes] | None = None) -> tuple[bytes, ...]:
    """The texts that hold in a folder of this machine, the weakest first; see `sbxguest.tree.ignore.texts_of`."""
    texts = texts_of(folder_fd, names)
    if names is None or _CARGO_FILE in names:
        with contextlib.suppress(OSError):
            os.stat(_CARGO_FILE, dir_fd=folder_fd, follow_symlinks=False)
            texts = (_CARGO, *texts)
    return texts if folder else (DEFAULTS, *texts)


def decides_what_is_left_out(path: bytes) -> bool:
    """Whether a change of this file may change what is left out."""
    return path.rpartition(b"/")[2] in (*IGNORE_FILES, _CARGO_FILE)


def without_ignored(rules: RuleTable, records: Iterable[Record]) -> Iterator[Record]:
    """A listing somebody else made, with a note for each path the rules leave out and nothing of what is below it.

    Places where contents wait are nobody's files: a listing that names one is not believed in that.
    """
    for record in records:
        if any(name.startswith(OWN_PREFIXES) for name in record.path.split(b"/")):
            continue
        inside = rules.inside(split(record.path)[0])
        if inside is None:
            continue
        is_folder = not isinstance(record, Note) and record.state.kind is Kind.DIR
        yield Note(record.path, "ignored") if inside.ignores(record.path, is_folder=is_folder) else record
