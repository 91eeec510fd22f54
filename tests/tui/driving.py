"""Driving the dashboard in a test: the real application on a screen in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from textual.pilot import Pilot
from textual.widgets import Static

from sbxtui.settings import Settings
from sbxtui.tui.app import Dashboard
from sbxtui.tui.opening import FirstLook
from sbxtui.tui.screens.main import MainScreen
from sbxtui.tui.tabs.registry import TABS
from sbxtui.tui.widgets.bars import StatusBar
from sbxtui.tui.widgets.output import OutputView
from sbxtui.tui.widgets.panes import DetailPane
from sbxtui.tui.widgets.table import FleetTable
from sbxtui.wiring import Services
from tests.support.fake_services import FakeCloud, home_at, services_for

DEADLINE_S = 30.0


@dataclass(frozen=True, slots=True)
class Driver:
    """A running dashboard under a pilot."""

    app: Dashboard
    pilot: Pilot[None]
    deadline_s: float = DEADLINE_S

    @property
    def main(self) -> MainScreen:
        """The main screen, also while a dialog is over it."""
        screen = self.app.screen_stack[0]
        assert isinstance(screen, MainScreen)
        return screen

    @property
    def output(self) -> OutputView:
        """What commands printed."""
        return self.main.query_one("#output", OutputView)

    async def press(self, *keys: str) -> None:
        """Press keys and let the dashboard react."""
        await self.pilot.press(*keys)

    async def until(self, is_so: Callable[[], object]) -> None:
        """Let the dashboard run until something is so."""
        async with asyncio.timeout(self.deadline_s):
            while not is_so():
                await self.pilot.pause()

    def text(self) -> str:
        """What is on the whole screen, as lines."""
        lines = self.app.screen._compositor.render_strips()
        return "\n".join(strip.text.rstrip() for strip in lines)

    def is_in_list(self) -> bool:
        """Whether the list has the focus and nothing is over it."""
        return self.app.screen is self.main and self.main.focused is self.main.query_one(FleetTable)

    def toasts(self) -> list[str]:
        """What was toasted and is still kept."""
        return [note.message for note in self.app._notifications]

    def status(self) -> str:
        """The status line."""
        return shown(self.main.query_one(StatusBar))


def shown(widget: Static) -> str:
    """The text of a static widget."""
    return str(widget.content)


def tab_key(tab_id: str) -> str:
    """The key that brings a tab to the front."""
    return next(str(at) for at, spec in enumerate(TABS, start=1) if spec.id == tab_id)


@asynccontextmanager
async def dashboard(
    root: Path,
    cloud: FakeCloud,
    *,
    size: tuple[int, int] = (100, 30),
    factory: Callable[[str], Services] | None = None,
    settings: Settings | None = None,
) -> AsyncIterator[Driver]:
    """The dashboard over `cloud`, after its first live look unless the cloud holds that back or is unreachable."""
    look = FirstLook(factory or services_for(root, cloud))
    look.start()
    app = Dashboard(settings or Settings(home=home_at(root)), look)
    async with app.run_test(size=size, notifications=True) as pilot:
        driver = Driver(app, pilot)
        await driver.until(lambda: driver.main.is_open or look.error is not None)
        if cloud.gate is None and cloud.error is None and look.error is None:
            await driver.until(lambda: not driver.main.fleet.is_cached)
        await driver.main.query_one(DetailPane).filled.wait()
        await pilot.pause()
        yield driver
