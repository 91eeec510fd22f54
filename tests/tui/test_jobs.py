"""The jobs tab over a real guest: what runs, who began it, following, signalling, removing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from textual.widgets import Static

from sbxtui.core.jobs import Job, JobState, TerminalSize
from sbxtui.core.model import SandboxState
from sbxtui.guest.client import GuestClient
from sbxtui.services.jobs import Command
from sbxtui.tui.screens.choose import ChooseScreen
from sbxtui.tui.screens.confirm import ConfirmScreen
from sbxtui.tui.screens.page import PageScreen
from sbxtui.tui.tabs.jobs import JobsTab
from sbxtui.tui.widgets.output import OutputView
from tests.support.guest_services import GuestScene, guest_scene
from tests.tui.driving import Driver, dashboard, shown, tab_key

DEADLINE_S = 60.0


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[GuestScene]:
    async with guest_scene(tmp_path) as found:
        yield found


@asynccontextmanager
async def jobs_tab(scene: GuestScene, size: tuple[int, int] = (120, 40)) -> AsyncIterator[Driver]:
    """The dashboard with the jobs of the guest in front."""
    root = scene.real.settings.home.state_dir.parent
    settings = scene.real.settings
    async with dashboard(root, scene.cloud, size=size, factory=scene.services, settings=settings) as driver:
        slow = replace(driver, deadline_s=DEADLINE_S)
        await slow.press(tab_key("jobs"), "tab")
        yield slow


def tab(driver: Driver) -> JobsTab:
    return driver.main.query_one(JobsTab)


def status(driver: Driver) -> str:
    return shown(driver.main.query_one("#jobs-status", Static))


def output(driver: Driver) -> OutputView:
    return driver.main.query_one("#job-output", OutputView)


async def start(scene: GuestScene, line: str, **more: object) -> Job:
    command = Command(["sh", "-c", line], **more)  # type: ignore[arg-type]  # fields by name
    return await scene.real.jobs.start(scene.row, command)


@pytest.mark.long
async def test_jobs_of_every_author_are_listed_live_and_finished_ones_stay(scene: GuestScene) -> None:
    async with GuestClient(scene.guest.url, None) as elsewhere:
        await elsewhere.exec(["sh", "-c", "exit 3"], job_id="theirs", actor="mcp:x")
    async with jobs_tab(scene) as driver:
        await driver.until(lambda: "! exit 3" in driver.text())
        assert "mcp:x" in driver.text() and "theirs" in driver.text()
        job = await start(scene, "while ! [ -e go ]; do sleep 0.05; done; kill -9 $$")
        await driver.until(lambda: status(driver) == "1 running · 1 ended in app")
        # Nobody here follows it: its end is seen all the same.
        (scene.guest.workdir / "go").touch()
        await driver.until(lambda: "x KILL" in driver.text())
        assert status(driver) == "2 ended in app"
        assert [one.id for one in tab(driver).jobs] == [job.id, "theirs"]


async def test_enter_follows_a_job_live_and_esc_comes_back(scene: GuestScene) -> None:
    job = await start(scene, "echo first; while ! [ -e go ]; do sleep 0.05; done; echo last; exit 4")
    async with jobs_tab(scene, size=(80, 24)) as driver:
        await driver.until(lambda: tab(driver).jobs)
        await driver.press("enter")
        await driver.until(lambda: "first" in driver.text())
        (scene.guest.workdir / "go").touch()
        await driver.until(lambda: "exit 4 · " in driver.text())
        assert "last" in driver.text() and job.id[:8] in status(driver)
        await driver.press("escape")
        await driver.until(lambda: "! exit 4" in driver.text())
        assert tab(driver).first_inside().has_focus


@pytest.mark.long
async def test_following_a_flood_keeps_answering_keys_in_bounded_memory(scene: GuestScene) -> None:
    job = await start(scene, "yes")
    async with jobs_tab(scene) as driver:
        await driver.until(lambda: tab(driver).jobs)
        await driver.press("enter")
        await driver.until(lambda: "dropped" in status(driver))
        await driver.press("escape")
        await driver.until(lambda: not tab(driver).has_class("-viewing"))
        transcript = output(driver).transcript
        assert transcript.end - transcript.first <= 10_001
        await scene.real.jobs.signal(job, "KILL")


@pytest.mark.long
async def test_a_signal_is_chosen_and_confirmed_by_what_it_does(scene: GuestScene) -> None:
    job = await start(scene, "trap 'exit 7' TERM; while :; do sleep 0.05; done")
    async with jobs_tab(scene) as driver:
        await driver.until(lambda: tab(driver).jobs)
        await driver.press("k")
        assert isinstance(driver.app.screen, ChooseScreen)
        await driver.press("down", "enter")
        assert isinstance(driver.app.screen, ConfirmScreen)
        assert "asked to end" in driver.text() and "Send TERM" in driver.text()
        await driver.press("n")
        assert (await scene.real.jobs.look(job)).state is JobState.RUNNING
        await driver.press("k", "down", "enter", "y")
        await driver.until(lambda: "! exit 7" in driver.text())
        await driver.press("k")
        await driver.until(lambda: any("has ended" in words for words in driver.toasts()))
    kinds = {event.kind: event.data for event in scene.real.events.list()}
    assert kinds["job.signal"]["signal"] == "TERM"


async def test_up_still_moves_where_k_signals(scene: GuestScene) -> None:
    for number in range(3):
        await start(scene, f"exit {number}")
    async with jobs_tab(scene) as driver:
        await driver.until(lambda: len(tab(driver).jobs) == 3)
        await driver.press("down", "j", "up")
        assert tab(driver).selected == tab(driver).jobs[1]


async def test_removing_names_what_is_lost_and_forgets_it(scene: GuestScene) -> None:
    await start(scene, "sleep 100")
    async with jobs_tab(scene) as driver:
        await driver.until(lambda: tab(driver).jobs)
        await driver.press("d")
        assert "ends with everything it started" in driver.text()
        await driver.press("y")
        await driver.until(lambda: not tab(driver).jobs)


async def test_details_id_and_attaching_say_what_can_be_done(scene: GuestScene) -> None:
    job = await start(scene, "sleep 100", label="nap")
    async with jobs_tab(scene) as driver:
        await driver.until(lambda: tab(driver).jobs)
        await driver.press("y")
        await driver.until(lambda: driver.app.clipboard == job.id)
        await driver.press("a")
        await driver.until(lambda: any("no terminal" in words for words in driver.toasts()))
        await driver.press("i")
        assert isinstance(driver.app.screen, PageScreen)
        assert "label    nap" in driver.text() and job.id in driver.text()
        await driver.press("escape")
        await scene.real.jobs.remove(job)
        await start(scene, "sleep 100", terminal=TerminalSize())
        await driver.until(lambda: tab(driver).jobs and tab(driver).jobs[0].has_terminal)
        await driver.press("a")
        await driver.until(lambda: any("cannot be lent" in words for words in driver.toasts()))


async def test_a_suspended_sandbox_shows_its_jobs_as_last_known(scene: GuestScene) -> None:
    await start(scene, "sleep 100")
    async with jobs_tab(scene) as driver:
        await driver.until(lambda: status(driver) == "1 running in app")
        scene.cloud.sandboxes = [replace(scene.cloud.sandboxes[0], state=SandboxState.SUSPENDED)]
        driver.main.services.watch.look_now()
        await driver.until(lambda: "? unknown" in driver.text())
        assert "is suspended: its jobs are as last known" in status(driver)
