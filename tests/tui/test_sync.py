"""The sync tab: how a sync is shown, and what a person decides, with a real sandbox where bytes are at stake."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from textual.widgets import Static

from sbxtui.core.errors import Conflict
from sbxtui.core.model import SandboxState
from sbxtui.services.sync.desk import Found, Item
from sbxtui.services.sync.model import Mode
from sbxtui.services.sync.spec import SyncSpec
from sbxtui.settings import Settings, Ui
from sbxtui.tui.screens.choose import ChooseScreen
from sbxtui.tui.screens.confirm import ConfirmScreen
from sbxtui.tui.synclines import item_row, state_lines
from sbxtui.tui.tabs.sync import SyncTab
from sbxtui.tui.widgets.rows import RowList
from tests.support.fake_services import FakeCloud, home_at, sandbox
from tests.support.fake_sync import FakeDesk, sync_view
from tests.support.guest_services import GuestScene, guest_scene
from tests.tui.driving import Driver, dashboard, shown, tab_key

DEADLINE_S = 60.0
TO_TAB = (tab_key("sync"), "tab")


def rows(driver: Driver) -> list[str]:
    return [
        "".join(text for text, _ in row.cells).strip() for row in driver.main.query_one("#sync-items", RowList).rows
    ]


def status(driver: Driver) -> str:
    return shown(driver.main.query_one("#sync-status", Static))


def state(driver: Driver) -> str:
    return shown(driver.main.query_one("#sync-state", Static))


def lines(width: int = 120, done: int = 0, **said: object) -> list[tuple[str, str]]:
    view = sync_view(str(said.pop("state", "watching")), **said)
    return state_lines(view, "api", view.seen_at + timedelta(seconds=3), done=done, width=width)


def test_a_sync_at_rest_tells_its_ends_its_size_its_age_and_its_lag() -> None:
    assert lines() == [
        ("/home/you/app → api, its work folder · push · goes on when sbx ends", ""),
        ("watching · 214 entries", "good"),
        ("last full scan 15s ago · lag 12 ms, p95 40 ms · 214 carried over", "muted"),
    ]


def test_what_is_carried_over_has_a_bar_and_what_is_open_is_counted() -> None:
    seeding = lines(state="seeding", pending=150, sent_bytes=3 << 20, conflict_count=2, guest_changes=1, done=50)
    assert ("seeding █████░░░░░░░░░░░░░░░ 25 % · 50 of 200 changes · 3.0 MiB sent", "busy") in seeding
    assert ("2 in conflict · 1 changed in the sandbox only", "warn") in seeding
    narrow = lines(width=40, state="seeding", pending=150, done=50)
    assert narrow[:2] == [("/home/you/app → api, its work folder", ""), ("seeding █████░░░░░░░░░░░░░░░ 25 %", "busy")]


def test_a_halt_says_why_and_hostile_paths_are_harmless() -> None:
    assert lines(state="halted", reason="this machine's folder is not there")[-1] == (
        "this machine's folder is not there",
        "warn",
    )
    row = item_row(Item(b"a\x1b]52;c;x\x07\n\xff.txt", "new", may_run=True), 60)
    text = "".join(part for part, _ in row.cells)
    assert text.isprintable() and "may be run here!" in text


@asynccontextmanager
async def sync_tab(root: Path, desk: FakeDesk, *, settings: Settings | None = None) -> AsyncIterator[Driver]:
    cloud = FakeCloud(sandboxes=[sandbox("api")], desk=desk)
    async with dashboard(root, cloud, settings=settings) as driver:
        await driver.press(*TO_TAB)
        await driver.until(lambda: driver.main.query_one(SyncTab)._is_told)
        yield driver


@pytest.mark.long
async def test_a_folder_is_chosen_and_then_which_way_changes_go(tmp_path: Path) -> None:
    desk = FakeDesk()
    async with sync_tab(tmp_path, desk) as driver:
        assert status(driver) == "api is not synced with a folder here · n begins that"
        await driver.press("n", *"/nowhere", "enter")
        assert "there is no such folder here" in driver.text()
        await driver.press(*["backspace"] * 8, *str(tmp_path), "enter")
        await driver.until(lambda: isinstance(driver.app.screen, ChooseScreen))
        await driver.press("down", "enter")
        await driver.until(lambda: desk.done == [f"start api {tmp_path} two-way"])
        await driver.until(lambda: "watching · 214 entries" in state(driver))


async def test_nothing_is_changed_where_nothing_may_be(tmp_path: Path) -> None:
    settings = Settings(home=home_at(tmp_path), ui=Ui(read_only=True))
    async with sync_tab(tmp_path, FakeDesk(sync_view(guest_changes=1)), settings=settings) as driver:
        keys = {action.id for action in driver.main.actions_here()}
        assert "sync_look" in keys and not {"sync_accept", "sync_start", "sync_stop", "sync_undo"} & keys


async def test_a_sync_that_goes_on_is_paused_and_a_halted_one_goes_on_only_after_a_question(tmp_path: Path) -> None:
    desk = FakeDesk(sync_view())
    async with sync_tab(tmp_path, desk) as driver:
        await driver.press("p")
        await driver.until(lambda: "paused" in state(driver))
        await driver.press("p")
        await driver.until(lambda: "watching" in state(driver))
        desk.show(sync_view("halted", halts=["first_contact_deletes"], reason="3 entries would be deleted"))
        await driver.until(lambda: "3 entries would be deleted" in state(driver))
        await driver.press("p")
        await driver.until(lambda: isinstance(driver.app.screen, ChooseScreen) and "Halted" in driver.text())
        await driver.press("down", "enter")
        await driver.until(lambda: desk.done == ["pause", "resume", "resume and delete"])


async def test_all_is_taken_over_only_after_a_look_at_what_may_run(tmp_path: Path) -> None:
    desk = FakeDesk(sync_view(guest_changes=3, conflict_count=1))
    desk.found = replace(desk.found, halts=("the sandbox deleted 90 of 100 entries",))
    async with sync_tab(tmp_path, desk) as driver:
        await driver.until(lambda: len(rows(driver)) == 4)
        await driver.press("A")
        await driver.until(lambda: isinstance(driver.app.screen, ConfirmScreen))
        for words in ("3 paths", "this machine may run package.json", "the sandbox deleted 90 of 100 entries"):
            assert words in driver.text()
        await driver.press("y")
        await driver.until(lambda: "accept with deletes src/app.py package.json old.txt" in desk.done)


async def test_what_fails_is_told_and_explained(tmp_path: Path) -> None:
    desk = FakeDesk(sync_view(), error=Conflict("somebody else is at it", hint="wait"))
    async with sync_tab(tmp_path, desk) as driver:
        await driver.press("p")
        await driver.until(lambda: any("somebody else is at it" in told for told in driver.toasts()))
        await driver.press("escape", "o")
        await driver.until(lambda: "What to do: wait" in driver.text())


async def test_a_sleeping_sandbox_is_looked_at_only_when_a_person_asks(tmp_path: Path) -> None:
    desk = FakeDesk(sync_view(guest_changes=1))
    cloud = FakeCloud(sandboxes=[sandbox("api", SandboxState.SUSPENDED)], desk=desk)
    async with dashboard(tmp_path, cloud) as driver:
        await driver.press(*TO_TAB)
        await driver.until(lambda: "r looks at both sides, which wakes it" in status(driver))
        assert desk.done == []
        await driver.press("r")
        await driver.until(lambda: desk.done == ["look"])


async def test_the_bar_counts_from_where_the_last_changes_ended(tmp_path: Path) -> None:
    desk = FakeDesk(sync_view())
    async with sync_tab(tmp_path, desk) as driver:
        desk.show(sync_view("pushing", pushed=264, pending=150))
        await driver.until(lambda: "25 %" in state(driver))


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[GuestScene]:
    async with guest_scene(tmp_path) as found:
        yield found


@asynccontextmanager
async def a_live_sync(scene: GuestScene, folder: Path) -> AsyncIterator[Driver]:
    """A folder that is being synced by this process, and the dashboard at it."""
    syncs, settings = scene.real.syncs, scene.real.settings
    link = await asyncio.to_thread(syncs.take, scene.row, SyncSpec(str(folder), "", Mode.PUSH))
    running = asyncio.create_task(syncs.run(scene.row, link, lambda status: None))
    try:
        root = settings.home.state_dir.parent
        async with dashboard(root, scene.cloud, factory=scene.services, settings=settings) as driver:
            slow = replace(driver, deadline_s=DEADLINE_S)
            await slow.press(*TO_TAB)
            await slow.until(lambda: "watching" in state(slow))
            yield slow
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


async def test_what_an_agent_did_is_seen_taken_over_taken_back_and_rejected(scene: GuestScene, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "a.txt").write_text("base\n")
    async with a_live_sync(scene, project) as driver:
        there = scene.guest.workdir / "a.txt"
        await driver.until(lambda: there.exists() and there.read_text() == "base\n")
        there.write_text("agent\n")
        await driver.press("r")
        await driver.until(lambda: len(rows(driver)) == 1 and rows(driver)[0].startswith("edited    a.txt"))
        await driver.press("enter")
        await driver.until(lambda: "+agent" in driver.text() and "-base" in driver.text())
        await driver.press("a")
        await driver.until(lambda: (project / "a.txt").read_text() == "agent\n")
        await driver.until(lambda: "nothing that is not here" in status(driver))
        await driver.press("u")
        await driver.until(lambda: isinstance(driver.app.screen, ChooseScreen | ConfirmScreen))
        if isinstance(driver.app.screen, ChooseScreen):
            await driver.press("enter")
            await driver.until(lambda: isinstance(driver.app.screen, ConfirmScreen))
        await driver.press("y")
        await driver.until(lambda: (project / "a.txt").read_text() == "base\n")
        await driver.until(lambda: len(rows(driver)) == 1)
        await driver.press("x")
        await driver.until(lambda: there.read_text() == "base\n")
        assert (project / "a.txt").read_text() == "base\n"


@pytest.mark.long
async def test_what_both_sides_changed_is_decided_for_one_of_them(scene: GuestScene, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    for name in ("a", "b"):
        (project / name).write_text("base\n")
    async with a_live_sync(scene, project) as driver:
        there = scene.guest.workdir
        await driver.until(lambda: (there / "b").exists())
        for name in ("a", "b"):
            (there / name).write_text("theirs\n")
            (project / name).write_text("ours\n")
        await driver.until(lambda: [row.split()[0] for row in rows(driver)] == ["conflict", "conflict"])
        await driver.press("g", "a")
        await driver.until(lambda: (project / "a").read_text() == "theirs\n")
        await driver.until(lambda: len(rows(driver)) == 1)
        await driver.press("x")
        await driver.until(lambda: (there / "b").read_text() == "ours\n")
        await driver.until(lambda: rows(driver) == [])


async def test_what_changed_since_it_was_seen_is_not_taken_over(scene: GuestScene, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "a.txt").write_text("base\n")
    async with a_live_sync(scene, project) as driver:
        there, desk = scene.guest.workdir / "a.txt", scene.real.sync_desk
        await driver.until(there.exists)
        there.write_text("seen\n")
        found: Found = await desk.look(scene.row)
        there.write_text("another one\n")
        decided = await desk.accept(scene.row, found, found.items)
        assert (decided.done, decided.failed) == (0, (("a.txt", "changed_meanwhile"),))
        assert (project / "a.txt").read_text() == "base\n"
