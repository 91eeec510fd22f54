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


class Tmux:
    """A server of our own with one window, in which a shell line runs."""

    def __init__(self, sbx: Sbx, line: str) -> None:
        self._socket = f"sbxt-{uuid.uuid4().hex[:8]}"
        self._env = sbx.environment()
        self("new-session", "-d", "-x", "100", "-y", "30", "-s", "t", line)

    def __call__(self, *words: str) -> str:
        done = subprocess.run(
            ["tmux", "-L", self._socket, *words],
            env=self._env,
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
        )
        return done.stdout

    def screen(self) -> str:
        """What is on the screen."""
        return self("capture-pane", "-p", "-t", "t")

    def press(self, *keys: str) -> None:
        """Type keys, by tmux's names."""
        self("send-keys", "-t", "t", *keys)


@pytest.fixture
def tmux(sbx: Sbx) -> Iterator[Callable[[str], Tmux]]:
    """Opens a line in tmux; ended afterwards."""
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    opened: list[Tmux] = []

    def open_line(line: str) -> Tmux:
        opened.append(Tmux(sbx, line))
        return opened[-1]

    yield open_line
    for one in opened:
        one("kill-server")


def test_in_tmux_it_opens_shows_rows_and_gives_the_terminal_back(sbx: Sbx, tmux: Callable[[str], Tmux]) -> None:
    sbx.ok("create", "tmuxed", "--memory", "512")
    window = tmux(f"{shlex.quote(sys.executable)} -m sbxtui; echo left with $?; exec cat")
    _until(lambda: "+ running" in window.screen(), window.screen)
    assert "tmuxed" in window.screen()
    window.press("q")
    _until(lambda: "left with 0" in window.screen(), window.screen)
    window.press("typed again", "Enter")
    _until(lambda: window.screen().count("typed again") == 2, window.screen)
    assert "Sandboxes" not in window.screen()


# After many sizes at once the screen sometimes stands some lines too high: the plan lists it.
@pytest.mark.slow
def test_in_tmux_a_shell_gets_it_back_from_the_background_at_any_size(tmux: Callable[[str], Tmux]) -> None:
    window = tmux("exec env PS1='prompt> ' bash --norc --noprofile -i")
    _until(lambda: "prompt>" in window.screen(), window.screen)
    window.press(f"{shlex.quote(sys.executable)} -m sbxtui", "Enter")
    _until(lambda: "no sandboxes yet" in window.screen(), window.screen)
    window.press("C-z")
    _until(lambda: "Stopped" in window.screen(), window.screen)
    window.press("echo $((6*7))", "Enter")
    _until(lambda: "\n42\n" in window.screen(), window.screen)
    window.press("fg", "Enter")
    _until(lambda: "no sandboxes yet" in window.screen(), window.screen)
    for columns, rows in ((40, 12), (200, 60), (10, 3), (80, 24)):
        window("resize-window", "-t", "t", "-x", str(columns), "-y", str(rows))
    _until(
        lambda: "no sandboxes yet" in window.screen() and "? help" in window.screen().splitlines()[23], window.screen
    )
    window.press("q")
    _until(lambda: window.screen().rstrip().endswith("prompt>"), window.screen)


def _until(is_so: Callable[[], bool], screen: Callable[[], str] = lambda: "") -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not is_so():
        assert time.monotonic() < deadline, f"it never came to be:\n{screen()}"
