"""One sandbox's transitions when the disk is full at the worst moment, on a real keeper and guest."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sbxtui.core.model import SandboxState
from sbxtui.localcloud.catalog import Catalog
from sbxtui.localcloud.launches import check_launch, new_record
from sbxtui.localcloud.records import Record, RecordStore
from sbxtui.localcloud.vms import Vm
from sbxtui.localcloud.world import World

LIMIT_S = 60


@dataclass(frozen=True, slots=True)
class FullDisk(RecordStore):
    """Refuses to write one state, as a disk does that is full at that moment."""

    refused: SandboxState = SandboxState.SUSPENDED

    async def save(self, record: Record) -> None:
        """As the real one, or ENOSPC."""
        if record.state is self.refused:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        await RecordStore.save(self, record)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Of plain processes below the test's folder."""
    sockets = Path(tempfile.mkdtemp(prefix="sbxt-", dir="/tmp"))
    catalog = Catalog("local-1", "000000000000", datetime.now(UTC))
    records = RecordStore(tmp_path / "records")
    records.directory.mkdir()
    yield World(records, catalog, tmp_path / "trees", sockets, 1.0, 1 << 20, "process")
    shutil.rmtree(sockets)


def _launched(world: World) -> Record:
    image = next(iter(world.catalog.images()))
    params = {"imageIdentifier": image.arn}
    return new_record(params, check_launch(params, world), world, 1, world.runtime)


async def test_a_disk_that_is_full_between_freeze_and_record_leaves_a_sandbox_that_can_be_resumed(
    world: World, tmp_path: Path
) -> None:
    record = _launched(world)
    vm = Vm(record, replace(world, records=FullDisk(tmp_path / "records")))
    async with asyncio.timeout(LIMIT_S):
        try:
            await vm.launch()
            assert vm.record.state_reason == ""
            await vm.suspend()
            assert vm.state is SandboxState.SUSPENDED
            # What a restart would find.
            (kept,) = world.records.load_all()
            assert kept.state is SandboxState.SUSPENDING
            again = Vm(kept, world)
            await again.reconcile()
            assert again.record.state is SandboxState.SUSPENDED
            for one in (again, vm):
                await one.resume()
                assert one.record.state is SandboxState.RUNNING
        finally:
            await vm.terminate()


async def test_a_sandbox_that_was_over_before_the_start_is_watched_by_nobody(world: World) -> None:
    vm = Vm(replace(_launched(world), state=SandboxState.TERMINATED), world)
    async with asyncio.timeout(LIMIT_S):
        await vm.watch_exit()


async def test_a_call_before_the_keeper_was_looked_for_waits_for_what_it_says(world: World) -> None:
    vm = Vm(_launched(world), world)
    async with asyncio.timeout(LIMIT_S):
        try:
            await vm.launch()
            found = Vm(vm.record, world)
            resumed = asyncio.create_task(found.suspend())
            await asyncio.sleep(0)
            assert not resumed.done()
            await found.reconcile()
            await resumed
            assert found.state is SandboxState.SUSPENDED
            await found.resume()
        finally:
            await vm.terminate()
