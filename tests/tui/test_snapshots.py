"""What the main screen looks like. Each picture stands beside what must be true of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from sbxtui.core.model import Sandbox, SandboxState
from sbxtui.settings import Settings, Ui
from sbxtui.tui import clock
from sbxtui.tui.app import Dashboard
from sbxtui.tui.opening import FirstLook
from tests.support import fake_services
from tests.support.fake_services import FakeCloud, home_at, sandbox, services_for
from tests.tui.driving import Driver

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SnapCompare = Callable[..., Any]


@pytest.fixture(autouse=True)
def still_clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Noon on the first of March, in UTC."""
    monkeypatch.setattr(clock, "now", lambda: NOW)
    monkeypatch.setattr(fake_services, "now", lambda: NOW)
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def every_kind() -> list[Sandbox]:
    state = SandboxState
    return [
        sandbox("api-tests", created_at=NOW - timedelta(minutes=14), labels={"team": "web"}),
        sandbox("agent-7f3", created_at=NOW - timedelta(minutes=3), facts={"isolation": "process — NOT isolated"}),
        sandbox("etl-nightly", state.SUSPENDED, created_at=NOW - timedelta(hours=26)),
        sandbox("fuzz-12", state.TERMINATED, created_at=NOW - timedelta(hours=2), state_reason="out of memory"),
        sandbox("warm-1", state.PENDING, created_at=NOW - timedelta(seconds=2), state_reason="launching"),
        sandbox("", created_at=NOW - timedelta(days=2)),
    ]


@pytest.mark.parametrize("theme", ["dark", "light"])
@pytest.mark.parametrize("size", [(80, 24), (160, 48)], ids=["80x24", "160x48"])
def test_the_main_screen(size: tuple[int, int], theme: str, tmp_path: Path, snap_compare: SnapCompare) -> None:
    look = FirstLook(services_for(tmp_path, FakeCloud(sandboxes=every_kind())))
    look.run()
    app = Dashboard(Settings(home=home_at(tmp_path), ui=Ui(theme=theme)), look)

    async def settle(pilot: Pilot[None]) -> None:
        driver = Driver(app, pilot)
        await driver.until(lambda: not driver.main.fleet.is_cached)
        await driver.press("g", "j", "space")
        await driver.until(lambda: driver.main.record is not None)
        fleet = driver.main.fleet
        assert [one.name for one in fleet.rows] == ["warm-1", "agent-7f3", "api-tests", "", "etl-nightly", "fuzz-12"]
        assert fleet.selected is not None and fleet.selected.name == "api-tests"
        assert fleet.marks == {"mvm-agent-7f3"}

    assert snap_compare(app, terminal_size=size, run_before=settle)
