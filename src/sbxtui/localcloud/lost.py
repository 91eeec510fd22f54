"""Sandboxes that live although their record was lost or cannot be read: taken up again as far as they are known.

Without a record nobody could see, use or end them, and they would run for ever.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from pathlib import Path

from sbxtui.core.model import SandboxState
from sbxtui.localcloud.catalog import IMAGE_VERSION
from sbxtui.localcloud.keeper_save import find_saved
from sbxtui.localcloud.records import Record
from sbxtui.localcloud.spec import SandboxSpec
from sbxtui.localcloud.world import World, has_living_keeper

log = logging.getLogger(__name__)

_REASON = "The record of this sandbox was lost; what is not known of it is left out."


def all_records(world: World) -> list[Record]:
    """The records of the home, and new ones for what lives there without. Blocking; call it after the sweep.

    A new record whose `endpoint_port` is not known has 0 there.
    """
    records = list(world.records.load_all())
    known = {record.id for record in records}
    for folder in sorted(world.trees_dir.glob("microvm-*")):
        if folder.name not in known and (record := _found(world, folder)) is not None:
            log.error("%s lives without a readable record; it got a new one", record.id)
            records.append(record)
    return records


def _found(world: World, folder: Path) -> Record | None:
    """A record for the sandbox of a folder, if that is one of this home that lives or sleeps on disk."""
    spec, keeper_socket = _spec_in(folder), world.keeper_socket(folder.name)
    # Trees may be shared by homes; these sockets are of this one.
    is_kept = has_living_keeper(keeper_socket)
    is_ours = spec is not None and spec.keeper_socket == keeper_socket
    is_asleep = not is_kept and is_ours and find_saved(folder) is not None
    if not is_kept and not is_asleep:
        return None
    return _completed(_rebuilt(world, folder, spec, is_asleep=is_asleep), world.records.damaged_text(folder.name))


def _spec_in(folder: Path) -> SandboxSpec | None:
    try:
        return SandboxSpec.from_json((folder / "spec.json").read_text())
    except (OSError, ValueError, AttributeError):
        return None


def _rebuilt(world: World, folder: Path, spec: SandboxSpec | None, *, is_asleep: bool) -> Record:
    """What its keeper was told of it, else what is as good as any: enough to find it and to end it."""
    images = world.catalog.images()
    image = next((image for image in images if spec is not None and image.name == spec.image_name), images[0])
    began_at = datetime.fromtimestamp(folder.stat().st_mtime, UTC)
    return Record(
        id=folder.name,
        state=SandboxState.SUSPENDED if is_asleep else SandboxState.RUNNING,
        image_name=image.name,
        image_arn=image.arn,
        image_version=IMAGE_VERSION,
        memory_mib=spec.memory_mib if spec else image.memory_mib,
        runtime=spec.runtime if spec else world.runtime,
        endpoint_port=0,
        started_at=began_at,
        token_key="",
        fingerprint="",
        payload="",
        suspended_at=began_at if is_asleep else None,
        state_reason=_REASON,
    )


def _completed(record: Record, damaged: str) -> Record:
    """The record with all that its damaged one still says, like the port that clients know."""
    rebuilt = json.loads(record.to_json())
    try:
        told = json.loads(damaged)
        fitting = {
            name: told[name]
            for name, value in rebuilt.items()
            if name in told and (value is None or type(told[name]) is type(value))
        }
        found = Record.from_json(json.dumps({**rebuilt, **fitting, "id": record.id, "state_reason": _REASON}))
    except (ValueError, TypeError):
        return record
    # It lives, whatever was written down.
    return found.with_changes(state=SandboxState.TERMINATING, terminated_at=None) if found.state.is_gone else found
