"""Files of links that have ended: what was agreed on goes at once, what was replaced here is kept its week."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from sbxguest.tree import TreeError
from sbxguest.tree.root import Root
from sbxguest.tree.stage import STAGE_FOLDERS, stage_paths
from sbxguest.tree.trash import MAX_AGE_S
from sbxtui.store.ancestors import try_lock

STAGE_SUFFIX = ".stage"
_TRASH = "trash"


def sweep(folder: Path, is_kept: Callable[[str], bool]) -> None:
    """Remove what ended links left in the folder of all links' files.

    Args:
        folder: It; need not be there.
        is_kept: Whether the link of a key goes on, asked anew while nobody else is at its files. The key is what the
            names of all files of one link begin with.
    """
    try:
        keys = {path.name.partition(".")[0] for path in folder.iterdir()}
    except FileNotFoundError:
        return
    for key in keys:
        if not is_kept(key):
            _end(folder / f"{key}.db", is_kept)


def _end(file: Path, is_kept: Callable[[str], bool]) -> None:
    lock = try_lock(file)
    if lock is None:
        return
    with lock:
        if is_kept(file.stem):
            return
        clear_stage(file.with_suffix(STAGE_SUFFIX))
        for one in file.parent.glob(f"{file.stem}.*"):
            if one.suffix != STAGE_SUFFIX:
                one.unlink(missing_ok=True)


def clear_beside(root_path: str) -> list[str]:
    """Clear the places beside a folder where a link may have had its stage; returns those that still keep something."""
    try:
        root = Root(root_path)
    except TreeError:
        return []
    try:
        return [path for path in stage_paths(root) if not clear_stage(Path(path))]
    finally:
        root.close()


def clear_stage(path: Path) -> bool:
    """Remove a stage that nobody uses, but for what its trash must still keep; whether all of it is gone."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return True
    try:
        if os.fstat(fd).st_uid != os.geteuid():
            return True
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return _cleared(path)
    except BlockingIOError:
        # Another link's.
        return False
    finally:
        os.close(fd)


def _cleared(path: Path) -> bool:
    oldest_s = time.time() - MAX_AGE_S
    with contextlib.suppress(OSError):
        for batch in (path / _TRASH).iterdir():
            if batch.lstat().st_mtime < oldest_s:
                shutil.rmtree(batch)
    with contextlib.suppress(OSError):
        (path / _TRASH).rmdir()
    for name in STAGE_FOLDERS:
        if name != _TRASH:
            shutil.rmtree(path / name, ignore_errors=True)
    if not (path / _TRASH).exists():
        shutil.rmtree(path, ignore_errors=True)
    return not path.exists()
