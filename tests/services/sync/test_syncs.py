"""Links of sandboxes that are renamed, removed and made anew under an old name, and what ended links leave behind."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sbxguest.tree.root import Root
from sbxguest.tree.stage import Stage, stage_paths
from sbxtui.core.errors import Conflict, NotFound, TimedOut
from sbxtui.core.model import Registration, SandboxId
from sbxtui.services.sync.model import Mode
from sbxtui.services.sync.spec import SyncSpec
from sbxtui.services.sync.status import LinkState, Status, tells_more
from sbxtui.store.ancestors import Ancestors
from sbxtui.wiring import Services
from tests.store.worker import record
from tests.support.direct import CONTEXT, NAME, direct_services, know

NOBODY = "http://127.0.0.1:9"
WEEK_S = 7 * 24 * 3600


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    services = direct_services(tmp_path / "home")
    yield services
    services.close()


@pytest.fixture
def app(services: Services) -> Registration:
    return know(services, NOBODY)


@pytest.fixture
def spec(tmp_path: Path) -> SyncSpec:
    (tmp_path / "h" / "project").mkdir(parents=True)
    return SyncSpec(os.fspath(tmp_path / "h" / "project"), "", Mode.PUSH)


def agreed_in(services: Services, row: Registration) -> dict[str, str]:
    ancestors = Ancestors.open(services.syncs.state_file(row))
    try:
        return ancestors.meta()
    finally:
        ancestors.close()


async def a_link(services: Services, row: Registration, spec: SyncSpec) -> None:
    """A link that nobody acts on any more, with something both sides agreed on."""
    link = services.syncs.take(row, spec)
    await services.syncs.accept_deletes(row)
    services.links.leave(link, link.owner)


async def test_a_renamed_sandbox_keeps_its_link_and_a_new_one_of_the_old_name_gets_nothing_of_it(
    services: Services, app: Registration, spec: SyncSpec
) -> None:
    await a_link(services, app, spec)
    renamed = await services.sandboxes.rename(NAME, "web")
    assert services.syncs.find(renamed).sandbox == "web"
    assert agreed_in(services, renamed) == {"accept_deletes": "1"}
    heir = services.registry.adopt(CONTEXT, NAME, record("microvm-other"), actor="test")
    with pytest.raises(NotFound):
        services.syncs.find(heir)
    assert agreed_in(services, heir) == {}
    services.syncs.take(heir, SyncSpec(f"{spec.root}/..", "", Mode.PUSH))
    assert services.syncs.find(renamed).spec["root"] == spec.root


async def test_a_removed_sandbox_leaves_no_link_and_what_it_knew_is_swept_away(
    services: Services, app: Registration, spec: SyncSpec
) -> None:
    await a_link(services, app, spec)
    file = services.syncs.state_file(app)
    await services.syncs.sweep()
    assert file.exists()
    services.registry.remove_row(app, actor="test")
    await services.syncs.sweep()
    assert services.syncs.list() == [] and list(file.parent.iterdir()) == []


async def test_an_ended_link_leaves_only_what_it_replaced_here_and_that_for_a_week(
    services: Services, app: Registration, spec: SyncSpec
) -> None:
    await a_link(services, app, spec)
    stage = services.syncs.state_file(app).with_suffix(".stage")
    kept = stage / "trash" / "batch" / "0-00"
    for path in (kept, stage / "incoming" / "half", stage / "batches" / "old"):
        path.parent.mkdir(parents=True)
        path.write_text("somebody wrote this")
    assert await services.syncs.end(app) == (str(stage),)
    assert list(stage.parent.iterdir()) == [stage] and [path for path in stage.rglob("*") if path.is_file()] == [kept]
    old_s = time.time() - WEEK_S - 60
    os.utime(kept.parent, (old_s, old_s))
    await services.syncs.sweep()
    assert list(stage.parent.iterdir()) == []


async def test_an_ended_link_clears_what_lay_beside_its_folder_unless_another_still_uses_it(
    services: Services, app: Registration, spec: SyncSpec
) -> None:
    root = Root(spec.root)
    stage = Stage(root, stage_paths(root))
    try:
        await a_link(services, app, spec)
        assert await services.syncs.end(app) == (stage.path,)
        assert Path(stage.path, "incoming").is_dir()
    finally:
        stage.close()
        root.close()
    await a_link(services, app, spec)
    assert await services.syncs.end(app) == ()
    assert os.listdir(os.path.dirname(spec.root)) == ["project"]


async def test_files_of_a_link_that_somebody_is_at_are_not_swept_away(services: Services, app: Registration) -> None:
    ancestors = Ancestors.open(services.syncs.state_file(app))
    try:
        async with ancestors.cycle(timeout_s=1):
            await services.syncs.sweep()
            assert ancestors.file.exists()
        await services.syncs.sweep()
        assert not ancestors.file.exists()
        # The lock that was removed is nobody's any more: whoever comes now and whoever came then exclude each other.
        other = Ancestors.open(ancestors.file)
        async with ancestors.cycle(timeout_s=1):
            with pytest.raises(TimedOut):
                async with other.cycle(timeout_s=0):
                    pass
        other.close()
    finally:
        ancestors.close()


def test_a_sandbox_that_is_still_launched_is_not_synced(services: Services, app: Registration, spec: SyncSpec) -> None:
    with pytest.raises(Conflict):
        services.syncs.take(replace(app, id=SandboxId("")), spec)


def test_time_going_by_is_nothing_to_tell() -> None:
    said = Status(state=LinkState.WATCHING, last_scan_at_s=1.0).as_json()
    assert not tells_more({**said, "last_scan_age_s": 7.0}, said)
    assert tells_more({**said, "pushed": 1}, said) and tells_more(said, {})
