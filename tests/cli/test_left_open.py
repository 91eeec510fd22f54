"""Looking keeps nothing awake: with every face left open on it, an idle sandbox falls asleep, and nothing wakes it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sbxtui.core.model import SandboxState
from sbxtui.settings import load
from sbxtui.tui.app import Dashboard
from sbxtui.tui.opening import FirstLook
from sbxtui.wiring import Services
from tests.support.sbx import DEADLINE_S, Sbx, sbx_home
from tests.tui.driving import Driver, tab_key

pytestmark = pytest.mark.long

# The shortest idle window, a minute, is six seconds here.
SCALE = "10"
LEFT_OPEN = (
    ("logs", "app", "--follow"),
    ("metrics", "app", "--watch"),
    ("top", "--watch"),
    ("events", "--follow"),
)


@pytest.fixture
def quick(tmp_path: Path) -> Iterator[Sbx]:
    """A home whose idle windows pass ten times as fast."""
    with sbx_home(tmp_path / "home", SBX_TIME_SCALE=SCALE) as own:
        yield own


async def test_an_idle_sandbox_falls_asleep_under_every_face_that_is_left_open(quick: Sbx) -> None:
    quick.ok("create", "app", "--memory", "512", "--idle", "60")
    quick.ok("forward", "app", ":8000", "--detach")
    faces = [
        subprocess.Popen(
            [*quick.command.split(), *words],
            env=quick.environment(),
            cwd=quick.home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for words in LEFT_OPEN
    ]
    settings = load(quick.environment(), cwd=quick.home)
    look = FirstLook(lambda name: Services(settings, actor="tui:you"))
    look.start()
    app = Dashboard(settings, look)
    try:
        async with app.run_test(size=(120, 40), notifications=True) as pilot:
            driver = Driver(app, pilot, deadline_s=2 * DEADLINE_S)

            def state() -> SandboxState | None:
                return next((one.state for one in driver.main.fleet.all if one.name == "app"), None)

            await driver.until(lambda: state() is SandboxState.RUNNING)
            for tab in ("jobs", "metrics", "logs"):
                await driver.press(tab_key(tab))
                await pilot.pause()
            await driver.until(lambda: state() is SandboxState.SUSPENDED)
            assert all(face.poll() is None for face in faces)
    finally:
        for face in faces:
            face.kill()
            face.wait()
    assert quick.ok("ls", "--json").json[0]["state"] == "SUSPENDED"
