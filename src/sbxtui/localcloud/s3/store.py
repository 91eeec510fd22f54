"""Buckets and objects on disk: an object is its content and a small file that names it, in the folder of its bucket."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sbxtui.localcloud.recordjson import record_json
from sbxtui.localcloud.spec import write_private

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
MAX_KEY_BYTES = 1024


@dataclass(frozen=True, slots=True)
class Stored:
    """An object. `headers` are those that come back with it, in lower case: content type, checksum, metadata."""

    key: str
    size_bytes: int
    etag: str
    stored_at: datetime
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ObjectStore:
    """The folder of the buckets. Blocking."""

    directory: Path

    def buckets(self) -> list[tuple[str, datetime]]:
        """All buckets by name, and since when they are there."""
        if not self.directory.is_dir():
            return []
        folders = sorted(path for path in self.directory.iterdir() if path.is_dir())
        return [(folder.name, datetime.fromtimestamp(folder.stat().st_ctime, UTC)) for folder in folders]

    def has_bucket(self, bucket: str) -> bool:
        """Whether there is one."""
        return _BUCKET.fullmatch(bucket) is not None and self._folder(bucket).is_dir()

    def make_bucket(self, bucket: str) -> bool:
        """Make one; False: the name cannot be one's. There already is fine."""
        if not _BUCKET.fullmatch(bucket):
            return False
        self._folder(bucket).mkdir(mode=0o700, parents=True, exist_ok=True)
        return True

    def remove_bucket(self, bucket: str) -> bool:
        """Remove one; False: it is not empty."""
        if next(self.objects(bucket), None) is not None:
            return False
        shutil.rmtree(self._folder(bucket), ignore_errors=True)
        return True

    def objects(self, bucket: str) -> Iterator[Stored]:
        """The objects of a bucket, by key."""
        found = (self._read(path) for path in self._folder(bucket).glob("*.json"))
        yield from sorted((one for one in found if one is not None), key=lambda one: one.key)

    def find(self, bucket: str, key: str) -> Stored | None:
        """One object."""
        return self._read(self._path(bucket, key, "json")) if self.has_bucket(bucket) else None

    def content_of(self, bucket: str, key: str) -> Path:
        """Where an object's content is, or will be."""
        return self._path(bucket, key, "data")

    def file_of(self, bucket: str, key: str) -> Path:
        """The content of an object that a build is made of.

        Raises:
            LookupError: There is none; the argument is the platform's code for why.
        """
        if not self.has_bucket(bucket):
            raise LookupError("S3_NO_SUCH_BUCKET")
        if self.find(bucket, key) is None:
            raise LookupError("S3_NO_SUCH_KEY")
        return self.content_of(bucket, key)

    def put(self, bucket: str, stored: Stored, content: Path) -> None:
        """Take a file as an object's content, and name it; the file is gone then.

        Raises:
            OSError: The disk is full.
        """
        content.replace(self.content_of(bucket, stored.key))
        write_private(self._path(bucket, stored.key, "json"), record_json(stored), is_durable=True)

    def remove(self, bucket: str, key: str) -> None:
        """Forget an object; not there is fine."""
        self._path(bucket, key, "json").unlink(missing_ok=True)
        self.content_of(bucket, key).unlink(missing_ok=True)

    def part_of(self, bucket: str, name: str) -> Path:
        """A file for what is on its way."""
        return self._folder(bucket) / f"{name}.part"

    def _folder(self, bucket: str) -> Path:
        return self.directory / bucket

    def _path(self, bucket: str, key: str, suffix: str) -> Path:
        # Keys may be anything; their hashes are names of files.
        return self._folder(bucket) / f"{hashlib.sha256(key.encode()).hexdigest()}.{suffix}"

    def _read(self, path: Path) -> Stored | None:
        try:
            raw: dict[str, Any] = json.loads(path.read_text())
            return Stored(**{**raw, "stored_at": datetime.fromisoformat(raw["stored_at"])})
        except (OSError, ValueError, TypeError, KeyError):
            return None
