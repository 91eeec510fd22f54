"""Snapshots of a home: copies of sandboxes under names, kept until they are removed.

A snapshot is a folder with the copy, as `copies` makes it, and a small file that names it. The folder is whole before
the file is written, and the file goes before the folder does: what a crash leaves is a folder without a name, which the
next start removes.
"""

from __future__ import annotations

import builtins
import dataclasses
import json
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from sbxtui.localcloud.copies import Copy, find_copy
from sbxtui.localcloud.keeper_place import remove_trees
from sbxtui.localcloud.recordjson import record_json
from sbxtui.localcloud.spec import write_private

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A copy with a name. `kind` is as `Copy` has it; `sandbox` is what the sandbox it is of was called then."""

    name: str
    id: str
    kind: str
    image_name: str
    runtime: str
    sandbox_id: str
    sandbox: str
    created_at: datetime
    size_bytes: int

    def to_json(self) -> str:
        """One JSON document."""
        return record_json(self)

    @classmethod
    def from_json(cls, text: str) -> Snapshot:
        """Undo `to_json`; unknown keys of a newer version are ignored.

        Raises:
            ValueError: It is no snapshot.
        """
        try:
            raw: dict[str, Any] = json.loads(text)
            values = {field.name: raw[field.name] for field in dataclasses.fields(cls)}
            return cls(**{**values, "created_at": datetime.fromisoformat(raw["created_at"])})
        except (KeyError, TypeError, AttributeError) as exc:
            raise ValueError(f"no snapshot: {exc}") from exc


@dataclass(frozen=True, slots=True)
class SnapshotStore:
    """The names in `directory`, the copies in `copies_dir`, which lies on the disk of the sandboxes."""

    directory: Path
    copies_dir: Path

    def folder_of(self, snapshot_id: str) -> Path:
        """Where the copy is, or will be."""
        return self.copies_dir / snapshot_id

    def list(self) -> Sequence[Snapshot]:
        """All of them, by name; one that cannot be read is left out and logged."""
        found = []
        for path in sorted(self.directory.glob("*.json")):
            try:
                found.append(Snapshot.from_json(path.read_text()))
            except FileNotFoundError:
                continue
            except (OSError, ValueError) as exc:
                log.error("the snapshot %s cannot be read: %s", path.name, exc)
        return found

    def find(self, name: str) -> Snapshot | None:
        """The snapshot of that name."""
        return next((one for one in self.list() if one.name == name), None)

    def save(self, snapshot: Snapshot) -> None:
        """Give a whole copy its name; durable on return.

        Raises:
            OSError: The disk is full or read-only.
        """
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(self._path(snapshot.name), snapshot.to_json(), is_durable=True)

    def delete(self, snapshot: Snapshot) -> None:
        """Take the name away, then the copy."""
        self._path(snapshot.name).unlink(missing_ok=True)
        remove_trees([self.folder_of(snapshot.id)])

    def sweep(self) -> None:
        """Remove copies nobody gave a name, and say of the others that what they were started with is still needed."""
        named = {one.id for one in self.list()}
        for folder in self._folders():
            copy = find_copy(folder)
            if folder.name not in named and not self._is_damaged(folder):
                remove_trees([folder])
            elif copy is not None:
                _keep_tree(copy)

    def _folders(self) -> builtins.list[Path]:
        return list(self.copies_dir.iterdir()) if self.copies_dir.is_dir() else []

    def _is_damaged(self, folder: Path) -> bool:
        """Whether a name that cannot be read may be this one's: then nothing is lost for good."""
        return any(folder.name in path.read_text(errors="replace") for path in self.directory.glob("*.json"))

    def _path(self, name: str) -> Path:
        return self.directory / f"{name}.json"


def _keep_tree(copy: Copy) -> None:
    """Its copy of the guest is not to be taken for one that nobody needs."""
    try:
        os.utime(copy.prepared["image_tree"])
    except (OSError, KeyError) as exc:
        log.warning("the guest of the copy %s is gone: %s", copy.folder, exc)
