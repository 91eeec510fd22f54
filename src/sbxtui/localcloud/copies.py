"""Copies of sandboxes: what one is at a moment, in a folder, for another to go on from.

Of a sandbox with a kernel of its own that is the image its kernel wrote, processes and memory in it (`memory`); of any
other its files (`files`), for the host's kernel copies no processes. `done.json` is written last: without it there is
no copy. A copy is never written to again; its files may have other names elsewhere.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sbxtui.localcloud.keeper_place import remove_trees, run_program
from sbxtui.localcloud.ownroot import LAYERS, UPPER
from sbxtui.localcloud.spec import write_private

MEMORY, FILES = "memory", "files"
# In the folder of a sandbox that is being made: what it shall go on from.
COPY_FOLDER = "copied"
_DONE = "done.json"
# What a sandbox's files are, where they are the host's.
_FILE_FOLDERS = ("work", "home", UPPER)


@dataclass(frozen=True, slots=True)
class Copy:
    """A whole copy. `prepared` is what the sandbox it is of was started with."""

    folder: Path
    kind: str
    prepared: Mapping[str, str]


def find_copy(folder: Path) -> Copy | None:
    """The copy in a folder; None if there is none, or it was cut short."""
    try:
        told = json.loads((folder / _DONE).read_text())
        prepared = {str(key): str(value) for key, value in told["prepared"].items()}
        return Copy(folder, str(told.get("kind", MEMORY)), prepared)
    except (OSError, ValueError, KeyError, AttributeError):
        return None


def finish_copy(folder: Path, kind: str, prepared: Mapping[str, str]) -> None:
    """Say that everything is there; durable on return."""
    told = json.dumps({"kind": kind, "prepared": dict(prepared)})
    write_private(folder / _DONE, told, is_durable=True)


def copy_memory(saved: Copy, target: Path) -> None:
    """Give what a kernel wrote a second home, without copying a byte.

    Raises:
        OSError: It cannot be; nothing of `target` is left.
    """
    with _made_whole(target) as folder:
        for file in saved.folder.iterdir():
            if file.name != _DONE:
                # Another sandbox's user reads it; only folders that are closed to everybody else lead to it.
                file.chmod(0o444)
                os.link(file, folder / file.name)
        finish_copy(folder, MEMORY, saved.prepared)


def copy_files(source: Path, prepared: Mapping[str, str], target: Path) -> None:
    """Copy the files of a sandbox, or of a copy; nothing may change them meanwhile. Links are copied as links.

    Raises:
        OSError: It cannot be, or not all of it; nothing of `target` is left.
    """
    with _made_whole(target) as folder:
        _copy_trees(["-a", "--reflink=auto"], [source / name for name in _FILE_FOLDERS], folder)
        # Nobody ever writes to layers: another name of each file will do.
        _copy_trees(["-a", "--link"], [source / LAYERS], folder)
        finish_copy(folder, FILES, prepared)


def _copy_trees(options: Sequence[str], trees: Sequence[Path], folder: Path) -> None:
    present = [str(tree) for tree in trees if tree.is_dir()]
    if present and run_program(["/bin/cp", *options, "--", *present, str(folder)]) != 0:
        raise OSError("its files could not be copied: the disk may be full, or a folder closed to its owner")


def copy_again(copy: Copy, target: Path) -> None:
    """Another copy of the same.

    Raises:
        OSError: As above.
    """
    if copy.kind == MEMORY:
        copy_memory(copy, target)
    else:
        copy_files(copy.folder, copy.prepared, target)


def take_files(sandbox_dir: Path) -> None:
    """Make the files of the copy in a sandbox's folder those of the sandbox; what was begun before is finished."""
    for name in (*_FILE_FOLDERS, LAYERS):
        copied = sandbox_dir / COPY_FOLDER / name
        if copied.is_dir():
            remove_trees([sandbox_dir / name])
            copied.replace(sandbox_dir / name)


@contextlib.contextmanager
def _made_whole(target: Path) -> Iterator[Path]:
    """A private folder that becomes `target` at the end, or is gone."""
    building = target.with_name(f".{target.name}.part")
    remove_trees([building, target])
    building.mkdir(mode=0o700, parents=True)
    try:
        yield building
        building.replace(target)
    except BaseException:
        remove_trees([building])
        raise
