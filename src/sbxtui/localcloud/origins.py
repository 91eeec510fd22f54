"""What a sandbox can go on from: what a build made, a snapshot, or another sandbox as it stands now, which is a fork.

To the API the latter two are images, too, `sbx-snapshot-NAME` and `sbx-fork-ID`, so that launching from one, and
finishing a launch that a crash cut short, is the same as for every other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from sbxtui.core.model import SandboxState
from sbxtui.localcloud import faults
from sbxtui.localcloud.catalog import Catalog, CatalogImage
from sbxtui.localcloud.copies import COPY_FOLDER, copy_again, find_copy
from sbxtui.localcloud.images.records import BUILT
from sbxtui.localcloud.records import Record, RecordStore
from sbxtui.localcloud.snapshots import SnapshotStore
from sbxtui.localcloud.vms import Vm

log = logging.getLogger(__name__)

SNAPSHOT, FORK = "sbx-snapshot-", "sbx-fork-"


@dataclass(frozen=True, slots=True)
class CopiedImages:
    """The images that snapshots and sandboxes are; `catalog` holds the fixed ones."""

    catalog: Catalog
    records: RecordStore
    snapshots: SnapshotStore

    def listed(self) -> Sequence[CatalogImage]:
        """The snapshots."""
        found = (self.find(SNAPSHOT + snapshot.name) for snapshot in self.snapshots.list())
        return [image for image in found if image is not None]

    def find(self, name: str) -> CatalogImage | None:
        """A snapshot, or a sandbox that can be forked."""
        if name.startswith(SNAPSHOT):
            snapshot = self.snapshots.find(name.removeprefix(SNAPSHOT))
            if snapshot is None:
                return None
            fixed = (image for image in self.catalog.images() if image.name == snapshot.image_name)
            base = next(fixed, None) or self.catalog.find_built(snapshot.image_name, None)
            return self._image(name, base, snapshot.runtime) if base is not None else None
        if name.startswith(FORK) and "/" not in name:
            record = self.records.load(name.removeprefix(FORK))
            if record is not None and record.state in (SandboxState.RUNNING, SandboxState.SUSPENDED):
                base = CatalogImage(
                    record.image_name,
                    record.image_arn,
                    record.memory_mib,
                    version=record.image_version,
                    program=record.program,
                )
                return self._image(name, base, record.runtime)
        return None

    def _image(self, name: str, base: CatalogImage, runtime: str) -> CatalogImage:
        return CatalogImage(name, self.catalog.arn_of(name), base.memory_mib, base, runtime, program=base.program)


def with_copies(catalog: Catalog, records: RecordStore, snapshots: SnapshotStore) -> Catalog:
    """The catalog with what is copied in it."""
    return replace(catalog, more=CopiedImages(catalog, records, snapshots))


@dataclass(frozen=True, slots=True)
class Origins:
    """Puts copies into the folders of sandboxes that go on from them. `find_vm` raises a Fault for one that is gone;
    `builds_dir` holds what builds of images made.
    """

    snapshots: SnapshotStore
    find_vm: Callable[[str], Vm]
    folder_of: Callable[[str], Path]
    builds_dir: Path = Path()
    # A snapshot must not go while somebody copies it.
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def populate(self, record: Record) -> None:
        """Put what a sandbox goes on from into its folder, unless it is there.

        Raises:
            Fault: There is no such copy any more, or it cannot be made.
            OSError: The disk is full.
        """
        target = self.folder_of(record.id) / COPY_FOLDER
        if not record.origin or find_copy(target) is not None:
            return
        if record.origin.startswith(FORK):
            await self.find_vm(record.origin.removeprefix(FORK)).copy_to(target)
            return
        if record.origin.startswith(BUILT):
            built = find_copy(self.builds_dir / record.origin.removeprefix(BUILT))
            if built is None:
                arn = record.image_arn
                raise faults.not_found(f"What was built of {arn} is gone", "MicroVMImage", arn)
            await asyncio.to_thread(copy_again, built, target)
            return
        async with self.lock:
            name = record.origin.removeprefix(SNAPSHOT)
            snapshot = await asyncio.to_thread(self.snapshots.find, name)
            copy = find_copy(self.snapshots.folder_of(snapshot.id)) if snapshot is not None else None
            if copy is None:
                raise faults.not_found(f"There is no snapshot {name} any more", "Snapshot", name)
            await asyncio.to_thread(copy_again, copy, target)
