"""The dashboard over the real services, a real store and real sandboxes of the local cloud."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sbxtui.core.model import SandboxState
from sbxtui.settings import load
from sbxtui.tui.app import Dashboard
from sbxtui.tui.opening import FirstLook
from sbxtui.tui.screens.page import PageScreen
from sbxtui.wiring import Services
from tests.support.sbx import Sbx, sbx_home
from tests.tui.driving import Driver

DEADLINE_S = 60.0

pytestmark = [pytest.mark.long, pytest.mark.skipif(sys.platform != "linux", reason="the local cloud needs Linux")]


@pytest.fixture
def sbx(tmp_path: Path) -> Iterator[Sbx]:
    """A home whose sandboxes and local cloud are ended afterwards."""
    with sbx_home(tmp_path / "home") as own:
        yield own


def states(driver: Driver) -> dict[str, SandboxState]:
    return {one.name: one.state for one in driver.main.fleet.all}


async def test_a_sandbox_lives_its_whole_life_in_the_dashboard(sbx: Sbx) -> None:
    settings = load(sbx.environment(), cwd=sbx.home)
    look = FirstLook(lambda name: Services(settings, actor="tui:you"))
    look.start()
    app = Dashboard(settings, look)
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        driver = Driver(app, pilot, deadline_s=DEADLINE_S)
        await driver.until(lambda: "no sandboxes yet" in driver.text())
        await driver.press("n", *"lab", "tab", "left", "left", "enter")
        await driver.until(lambda: states(driver) == {"lab": SandboxState.RUNNING})
        await driver.until(lambda: "created lab" in driver.status())
        await driver.press("e", *"echo $((6*7)); exit 5", "enter")
        await driver.until(lambda: "exit 5 · " in driver.text())
        assert "42" in driver.text()
        await driver.press("escape", "i")
        await driver.until(lambda: isinstance(driver.app.screen, PageScreen))
        await driver.press("escape", "p")
        await driver.until(lambda: states(driver) == {"lab": SandboxState.SUSPENDED})
        await driver.press("p")
        await driver.until(lambda: states(driver) == {"lab": SandboxState.RUNNING})
        await driver.until(lambda: "resumed lab" in driver.status())
        await driver.press("d", "y")
        await driver.until(lambda: states(driver) == {})
    assert look.services is not None
    made = {event.kind for event in look.services.events.tail(100) if event.actor == "tui:you"}
    assert {"sandbox.suspend", "sandbox.resume"} <= made
    look.services.close()


async def test_what_another_face_does_is_seen_here(sbx: Sbx) -> None:
    sbx.ok("create", "mine", "--memory", "512")
    settings = load(sbx.environment(), cwd=sbx.home)
    look = FirstLook(lambda name: Services(settings, actor="tui:you"))
    look.start()
    app = Dashboard(settings, look)
    async with app.run_test(size=(120, 40)) as pilot:
        driver = Driver(app, pilot, deadline_s=DEADLINE_S)
        await driver.until(lambda: states(driver) == {"mine": SandboxState.RUNNING})
        other = sbx.spawn("rename", "mine", "yours")
        await driver.until(lambda: set(states(driver)) == {"yours"})
        assert other.wait(DEADLINE_S) == 0
    assert look.services is not None
    look.services.close()


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
def test_in_tmux_it_opens_shows_rows_and_gives_the_terminal_back(sbx: Sbx) -> None:
    sbx.ok("create", "tmuxed", "--memory", "512")
    socket = f"sbxt-{uuid.uuid4().hex[:8]}"
    line = f"{shlex.quote(sys.executable)} -m sbxtui; echo left with $?; exec cat"

    def tmux(*words: str) -> str:
        done = subprocess.run(
            ["tmux", "-L", socket, *words],
            env=sbx.environment(),
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
        )
        return done.stdout

    try:
        tmux("new-session", "-d", "-x", "100", "-y", "30", "-s", "t", line)
        _until(lambda: "+ running" in tmux("capture-pane", "-p", "-t", "t"))
        assert "tmuxed" in tmux("capture-pane", "-p", "-t", "t")
        tmux("send-keys", "-t", "t", "q")
        _until(lambda: "left with 0" in tmux("capture-pane", "-p", "-t", "t"))
        tmux("send-keys", "-t", "t", "typed again", "Enter")
        _until(lambda: tmux("capture-pane", "-p", "-t", "t").count("typed again") == 2)
        assert "Sandboxes" not in tmux("capture-pane", "-p", "-t", "t")
    finally:
        tmux("kill-server")


def _until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not is_so():
        assert time.monotonic() < deadline, "it never came to be"
