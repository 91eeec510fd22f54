"""One image on disk with its versions and their builds. A deletion follows from its instant, so no restart loses it."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from sbxtui.localcloud.program import Program
from sbxtui.localcloud.recordjson import record_json
from sbxtui.localcloud.spec import write_private

log = logging.getLogger(__name__)

SUCCESSFUL, FAILED, UNDER_WAY = "SUCCESSFUL", "FAILED", ("PENDING", "IN_PROGRESS")
ACTIVE, INACTIVE = "ACTIVE", "INACTIVE"
# The origin of a sandbox that goes on from what a build made begins so.
BUILT = "sbx-build-"
# On the platform there is one build, with a snapshot of its own, for each generation of processors.
GENERATIONS = ("3", "4")


@dataclass(frozen=True, slots=True)
class Version:
    """One version, as `1.0`. `asked` is the request it was made by, as it is echoed.

    `reason` is why its build failed, `runtime` what it was built in. Sizes are bytes, 0 where there is nothing.
    """

    name: str
    state: str
    status: str
    asked: Mapping[str, Any]
    made_at: datetime
    changed_at: datetime
    build_id: str
    reason: str = ""
    memory_bytes: int = 0
    code_bytes: int = 0
    disk_bytes: int = 0
    program: Program = field(default_factory=Program)
    runtime: str = ""
    deleting_at: datetime | None = None

    @property
    def is_launchable(self) -> bool:
        """Built, active, and not on its way out."""
        return (self.state, self.status, self.deleting_at) == (SUCCESSFUL, ACTIVE, None)

    @property
    def number(self) -> int:
        """`1.0` is 1."""
        return int(self.name.partition(".")[0])

    @property
    def memory_mib(self) -> int:
        """The size of its sandboxes."""
        resources = self.asked.get("resources") or [{"minimumMemoryInMiB": 2048}]
        return int(resources[0]["minimumMemoryInMiB"])

    def with_changes(self, **changes: Any) -> Version:
        """A copy with some fields replaced."""
        return dataclasses.replace(self, **changes)


@dataclass(frozen=True, slots=True)
class Image:
    """One image; `versions` oldest first, `made` counts them. `tokens` maps client tokens to what they asked for."""

    name: str
    state: str
    made_at: datetime
    changed_at: datetime
    versions: tuple[Version, ...]
    made: int = 1
    tags: Mapping[str, str] = field(default_factory=dict)
    tokens: Mapping[str, str] = field(default_factory=dict)
    deleting_at: datetime | None = None

    def version(self, name: str) -> Version | None:
        """One of its versions."""
        return next((one for one in self.versions if one.name == name), None)

    def newest(self, state: str) -> Version | None:
        """The newest that can be launched (`SUCCESSFUL`), or the newest that failed."""
        fitting = (one for one in reversed(self.versions) if one.state == state)
        return next((one for one in fitting if state == FAILED or one.is_launchable), None)

    def with_version(self, version: Version) -> Image:
        """A copy in which a version is replaced, or added."""
        others = tuple(one for one in self.versions if one.name != version.name)
        return self.with_changes(versions=tuple(sorted((*others, version), key=lambda one: one.number)))

    def with_changes(self, **changes: Any) -> Image:
        """A copy with some fields replaced."""
        return dataclasses.replace(self, **changes)

    def to_json(self) -> str:
        """One JSON document."""
        return record_json(self)

    @classmethod
    def from_json(cls, text: str) -> Image:
        """Undo `to_json`.

        Raises:
            ValueError: It is no image.
        """
        try:
            raw: dict[str, Any] = json.loads(text)
            return cls(**{**_with_instants(raw), "versions": tuple(_version(one) for one in raw["versions"])})
        except (KeyError, TypeError, AttributeError) as exc:
            raise ValueError(f"no image: {exc}") from exc


@dataclass(frozen=True, slots=True)
class ImageStore:
    """Records in `directory`, what builds made in `trees_dir`, which lies on the disk of the sandboxes."""

    directory: Path
    trees_dir: Path

    def load_all(self) -> Iterator[Image]:
        """All that can be read, by name. Blocking."""
        for path in sorted(self.directory.glob("*.json")):
            if (image := self._read(path)) is not None:
                yield image

    def load(self, name: str) -> Image | None:
        """One; None if there is none that can be read. Blocking."""
        return self._read(self._path(name))

    def save(self, image: Image) -> None:
        """Write one; durable on return. Blocking.

        Raises:
            OSError: The disk is full or read-only; the one before holds.
        """
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(self._path(image.name), image.to_json(), is_durable=True)

    def forget(self, name: str) -> None:
        """Take its record away."""
        self._path(name).unlink(missing_ok=True)

    def folder_of(self, build_id: str) -> Path:
        """Where what a build made is, or will be: a copy of a sandbox."""
        return self.trees_dir / build_id

    def log_of(self, build_id: str) -> Path:
        """What a build said."""
        return self.directory / f"{build_id}.log"

    def _path(self, name: str) -> Path:
        return self.directory / f"{name}.json"

    def _read(self, path: Path) -> Image | None:
        try:
            return Image.from_json(path.read_text())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as exc:
            log.error("the image %s cannot be read: %s", path.name, exc)
            return None


def _version(raw: Mapping[str, Any]) -> Version:
    return Version(**{**_with_instants(raw), "program": Program.from_dict(raw["program"])})


def _with_instants(raw: Mapping[str, Any]) -> dict[str, Any]:
    names = ("made_at", "changed_at", "deleting_at")
    return {**raw, **{name: datetime.fromisoformat(raw[name]) if raw[name] else None for name in names}}
