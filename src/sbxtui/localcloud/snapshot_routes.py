"""What the local cloud answers of snapshots, under `/sbx/v1/`, beside AWS's API.

GET    /sbx/v1/snapshots                                    all of them
PUT    /sbx/v1/snapshots/NAME   {"sandbox": ID, "name": …}  copy a sandbox; `name` is what it is called now
DELETE /sbx/v1/snapshots/NAME
"""

from __future__ import annotations

import asyncio
import json
import re
import uuid
from datetime import UTC, datetime
from typing import Any

from sbxtui.core.text import harmless_line
from sbxtui.localcloud import faults
from sbxtui.localcloud.origins import Origins
from sbxtui.localcloud.runtimes.choose import find_runtime
from sbxtui.localcloud.sigv4 import HttpRequest
from sbxtui.localcloud.snapshots import Snapshot
from sbxtui.localcloud.treewalk import usage_of

PREFIX = "/sbx/v1/snapshots"
_PATH = re.compile(r"/sbx/v1/snapshots(?:/([a-z0-9][a-z0-9-]{0,62}))?")


class SnapshotApi:
    """Answers requests whose signature was checked."""

    def __init__(self, origins: Origins) -> None:
        self._origins = origins
        self._store = origins.snapshots
        self._being_made: set[str] = set()

    async def answer(self, request: HttpRequest) -> dict[str, Any]:
        """The answer's document.

        Raises:
            Fault: What goes wrong, in the service's own shape.
        """
        match = _PATH.fullmatch(request.raw_path)
        if match is None:
            raise faults.validation("A snapshot's name has 1 to 63 of a-z, 0-9 and -, and begins with no -")
        name = match[1]
        if request.method == "GET" and name is None:
            found = await asyncio.to_thread(self._store.list)
            return {"snapshots": [_document(one) for one in found]}
        if request.method == "PUT" and name is not None:
            # It goes on when whoever asked leaves: a sandbox is in the middle of being copied.
            return await asyncio.shield(self._create(name, request.body))
        if request.method == "DELETE" and name is not None:
            return await self._delete(name)
        raise faults.unknown_operation()

    async def _create(self, name: str, body: bytes) -> dict[str, Any]:
        sandbox_id, called = _asked(body)
        vm = self._origins.find_vm(sandbox_id)
        if name in self._being_made or await asyncio.to_thread(self._store.find, name) is not None:
            raise faults.conflict(f"There is a snapshot {name} already", "Snapshot", name)
        self._being_made.add(name)
        snapshot_id = uuid.uuid4().hex
        folder = self._store.folder_of(snapshot_id)
        try:
            kind = await vm.copy_to(folder)
            usage = await asyncio.to_thread(usage_of, folder)
            snapshot = Snapshot(
                name=name,
                id=snapshot_id,
                kind=kind,
                image_name=vm.record.image_name,
                runtime=vm.record.runtime,
                sandbox_id=sandbox_id,
                sandbox=called,
                created_at=datetime.now(UTC),
                size_bytes=usage.size_bytes,
            )
            await asyncio.to_thread(self._store.save, snapshot)
        finally:
            self._being_made.discard(name)
        return _document(snapshot)

    async def _delete(self, name: str) -> dict[str, Any]:
        async with self._origins.lock:
            snapshot = await asyncio.to_thread(self._store.find, name)
            if snapshot is None:
                raise faults.not_found(f"There is no snapshot {name}", "Snapshot", name)
            await asyncio.to_thread(self._store.delete, snapshot)
        return {}


def _asked(body: bytes) -> tuple[str, str]:
    try:
        told = json.loads(body)
        sandbox_id, called = told["sandbox"], told.get("name", "")
    except (ValueError, TypeError, KeyError, AttributeError) as exc:
        raise faults.serialization("The body must be a JSON object with `sandbox`") from exc
    if not isinstance(sandbox_id, str) or not isinstance(called, str):
        raise faults.serialization("`sandbox` and `name` must be strings")
    return sandbox_id, harmless_line(called, limit=63)


def _document(snapshot: Snapshot) -> dict[str, Any]:
    return {
        "name": snapshot.name,
        "kind": snapshot.kind,
        "image": snapshot.image_name,
        "isolation": find_runtime(snapshot.runtime).isolation,
        "sandbox": snapshot.sandbox,
        "sandboxId": snapshot.sandbox_id,
        "createdAt": snapshot.created_at.isoformat(),
        "sizeBytes": snapshot.size_bytes,
    }
