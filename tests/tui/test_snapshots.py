"""What every screen looks like, small and large, dark and light. Each picture stands beside what must be true of it."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from pytest_textual_snapshot import SVGImageExtension, normalize_svg  # type: ignore[import-untyped]  # it has none
from syrupy.assertion import SnapshotAssertion
from textual.widgets import Input

from sbxtui.settings import Settings, Ui
from sbxtui.tui import clock
from sbxtui.tui.widgets import bars
from tests.support import fake_ports, fake_services, fake_sync
from tests.support.fake_services import home_at
from tests.tui.driving import Driver, dashboard
from tests.tui.sights import NOW, SCENES, Scene, has_no_toasts, to_the_list

pytestmark = pytest.mark.long

SIZES = ((80, 24), (160, 48))
THEMES = ("dark", "light")


@pytest.fixture(autouse=True)
def still_clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Noon on the first of March, in UTC."""
    monkeypatch.setattr(clock, "now", lambda: NOW)
    monkeypatch.setattr(fake_services, "now", lambda: NOW)
    monkeypatch.setattr(fake_sync, "now", lambda: NOW)
    monkeypatch.setattr(fake_ports, "now", lambda: NOW)
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    # What was done stays in the last line, however slow the machine.
    monkeypatch.setattr(bars, "_TOLD_S", math.inf)
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.timeout(400)  # twelve pictures, on a machine that does much else
@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name)
async def test_the_screen(scene: Scene, theme: str, tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    pictures = snapshot.use_extension(SVGImageExtension)
    different = []
    settings = Settings(home=home_at(tmp_path), ui=Ui(theme=theme))
    async with dashboard(tmp_path, scene.cloud(tmp_path), size=SIZES[0], settings=settings) as driver:
        for sight in scene.sights:
            await to_the_list(driver)
            # What the sight before said would stay below a dialog, or not, as it comes.
            await driver.until(lambda: has_no_toasts(driver))
            for step in sight.steps:
                await (driver.press(step) if isinstance(step, str) else step(driver))
            for width, height in SIZES:
                await driver.pilot.resize_terminal(width, height)
                await driver.until(lambda: has_no_toasts(driver))
                sight.arrange(driver)
                await driver.until(partial(sight.is_so, driver))
                name = f"{sight.name}-{width}x{height}"
                if pictures(name=name) != await picture(driver):
                    different.append(name)
    assert different == [], "looks different; --snapshot-update draws them anew: then look at them"


async def picture(driver: Driver) -> str:
    """The screen as an SVG, once it has come to rest."""
    for line in driver.app.screen.query(Input):
        line.cursor_blink = False
    before, now = "", driver.app.export_screenshot()
    async with asyncio.timeout(driver.deadline_s):
        while normalize_svg(now) != normalize_svg(before):
            await driver.pilot.pause()
            before, now = now, driver.app.export_screenshot()
    return now
