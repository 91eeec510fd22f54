"""The bases of a home on disk: a small file each, and the root it tells of."""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from sbxtui.localcloud.bases.root import make_root
from sbxtui.localcloud.keeper_place import remove_trees
from sbxtui.localcloud.recordjson import record_json
from sbxtui.localcloud.spec import write_private
from sbxtui.localcloud.treewalk import usage_of

# As a FROM names it, registry and tag too: a Dockerfile then needs no change.
NAME = re.compile(r"[a-z0-9][a-zA-Z0-9._/:-]{0,127}")


@dataclass(frozen=True, slots=True)
class Base:
    """One base. `folder` is the name of its root among the roots, `source` where it came from."""

    name: str
    folder: str
    source: str
    made_at: datetime
    size_bytes: int


@dataclass(frozen=True, slots=True)
class BaseStore:
    """Records in `directory`, roots in `roots_dir`, which lies on the disk of the sandboxes. Blocking."""

    directory: Path
    roots_dir: Path

    def all(self) -> list[Base]:
        """By name."""
        found = (self._read(path) for path in self.directory.glob("*.json"))
        return sorted((one for one in found if one is not None), key=lambda one: one.name)

    def find(self, name: str) -> Base | None:
        """One of them."""
        return self._read(self._path(name))

    def add(self, name: str, source: Path) -> Base:
        """Make a base of a folder or a tar; it is copied, so what happens to that later is nothing to it.

        Raises:
            BadRoot: It is no root of a system.
            OSError: The disk is full.
        """
        folder = uuid.uuid4().hex
        # A sandbox's own uid passes through.
        for parent in (self.roots_dir.parent, self.roots_dir):
            parent.mkdir(parents=True, exist_ok=True)
            parent.chmod(0o711)
        root = self.root_of(folder)
        make_root(source, root)
        base = Base(name, folder, str(source), datetime.now(UTC), usage_of(root).size_bytes)
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(self._path(name), record_json(base), is_durable=True)
        return base

    def remove(self, base: Base) -> None:
        """Forget one and its root."""
        self._path(base.name).unlink(missing_ok=True)
        remove_trees([self.root_of(base.folder)])

    def root_of(self, folder: str) -> Path:
        """Where a root is, or will be."""
        return self.roots_dir / folder

    def _path(self, name: str) -> Path:
        return self.directory / f"{hashlib.sha256(name.encode()).hexdigest()[:40]}.json"

    def _read(self, path: Path) -> Base | None:
        try:
            raw = json.loads(path.read_text())
            return Base(**{**raw, "made_at": datetime.fromisoformat(raw["made_at"])})
        except (OSError, ValueError, TypeError, KeyError):
            return None
