"""What builds have done before: the sandbox behind each RUN, under a hash of all that led to it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sbxtui.localcloud.copies import Copy, find_copy
from sbxtui.localcloud.keeper_place import remove_trees

_KEPT = 24


def next_key(key: str, told: Any) -> str:
    """The hash of a step that follows on `key`; `told` is all that decides what it does."""
    return hashlib.sha256(json.dumps([key, told]).encode()).hexdigest()[:40]


@dataclass(frozen=True, slots=True)
class Layers:
    """The folder of the layers. A layer's use is seen in its time; the ones longest unused go first."""

    directory: Path

    def folder_of(self, key: str) -> Path:
        """Where a layer is, or will be."""
        return self.directory / key

    def find_last(self, keys: Sequence[str]) -> tuple[int, Copy | None]:
        """The last of these that is there: how many steps it saves, and the copy. Blocking."""
        for count in range(len(keys), 0, -1):
            copy = find_copy(self.folder_of(keys[count - 1]))
            if copy is not None:
                copy.folder.touch()
                return count, copy
        return 0, None

    def prune(self) -> None:
        """Remove the ones that are too many. Blocking."""
        if not self.directory.is_dir():
            return
        found = sorted(self.directory.iterdir(), key=lambda folder: folder.stat().st_mtime, reverse=True)
        remove_trees(found[_KEPT:])
