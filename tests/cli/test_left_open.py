"""Looking keeps nothing awake: with every face left open on it no byte reaches an idle sandbox, and it falls asleep."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from sbxtui.core.model import SandboxState
from sbxtui.settings import Settings, load
from sbxtui.tui.app import Dashboard
from sbxtui.tui.opening import FirstLook
from sbxtui.wiring import Services
from tests.support.counted import counted_way
from tests.support.sbx import DEADLINE_S, Sbx, sbx_home
from tests.tui.driving import Driver, tab_key

pytestmark = pytest.mark.long

# The shortest idle window, a minute, is six seconds here.
SCALE = 10
WINDOW_S = 60 / SCALE
LEFT_OPEN = (
    ("logs", "app", "--follow", "--json"),
    ("metrics", "app", "--watch"),
    ("top", "--watch"),
    ("events", "--follow"),
)


@pytest.fixture
def quick(tmp_path: Path) -> Iterator[Sbx]:
    """A home whose idle windows pass ten times as fast."""
    with sbx_home(tmp_path / "home", SBX_TIME_SCALE=str(SCALE)) as own:
        yield own


async def test_no_byte_reaches_an_idle_sandbox_under_the_faces_left_open_on_it_and_it_sleeps_until_somebody_works(
    quick: Sbx, tmp_path: Path
) -> None:
    quick.ok("create", "app", "--memory", "512", "--idle", "60")
    # However slow the machine is, it does not fall asleep before all look at it.
    quick.ok("keep-awake", "app", "--until", "1h")
    settings = load(quick.environment(), cwd=quick.home)
    async with counted_way(_endpoint(settings)) as way:
        _lead_over(settings, way.endpoint)
        await asyncio.to_thread(_link, quick)
        log = tmp_path / "followed"
        faces = _left_open(quick, log)
        try:
            async with _dashboard(settings) as driver:
                await _run(quick, "exec", "app", "--", "echo", "before")
                await driver.until(lambda: _said(log) == ["before"])
                await _run(quick, "keep-awake", "app", "--stop")
                await driver.until(lambda: way.silent_s > WINDOW_S / 2)
                passed_bytes = way.passed_bytes
                await driver.until(lambda: _state(driver) is SandboxState.SUSPENDED)
                assert passed_bytes == way.passed_bytes > 0
                assert all(face.poll() is None for face in faces)
                # Whoever wakes it is none of these, and the follower goes on from where it was.
                await _run(quick, "exec", "app", "--", "echo", "after")
                await driver.until(lambda: _said(log) == ["before", "after"])
        finally:
            for face in faces:
                face.kill()
                face.wait()


def _endpoint(settings: Settings) -> str:
    with closing(sqlite3.connect(settings.home.store_file)) as store:
        (endpoint,) = store.execute("SELECT endpoint FROM registrations").fetchone()
    return str(endpoint)


def _lead_over(settings: Settings, endpoint: str) -> None:
    """Have every process of the home reach its sandbox there."""
    with closing(sqlite3.connect(settings.home.store_file)) as store, store:
        store.execute("UPDATE registrations SET endpoint = ?", (endpoint,))


def _link(quick: Sbx) -> None:
    quick.ok("forward", "app", ":8000", "--detach")
    folder = quick.home / "project"
    folder.mkdir()
    (folder / "a.txt").write_text("synced both ways")
    quick.ok("sync", "app", str(folder), "--mode", "two-way", "--detach")


def _left_open(quick: Sbx, log: Path) -> list[subprocess.Popen[bytes]]:
    with log.open("wb") as out:
        return [
            subprocess.Popen(
                [*quick.command.split(), *words],
                env=quick.environment(),
                cwd=quick.home,
                stdin=subprocess.DEVNULL,
                stdout=out if words[0] == "logs" else subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            for words in LEFT_OPEN
        ]


@asynccontextmanager
async def _dashboard(settings: Settings) -> AsyncIterator[Driver]:
    """A dashboard that has been at every tab that asks sandboxes."""
    look = FirstLook(lambda name: Services(settings, actor="tui:you"))
    look.start()
    app = Dashboard(settings, look)
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        driver = Driver(app, pilot, deadline_s=2 * DEADLINE_S)
        await driver.until(lambda: _state(driver) is SandboxState.RUNNING)
        for tab in ("jobs", "metrics", "logs"):
            await driver.press(tab_key(tab))
            await pilot.pause()
        yield driver


async def _run(quick: Sbx, *words: str) -> None:
    """Beside the way, which leads through this process."""
    await asyncio.to_thread(quick.ok, *words)


def _state(driver: Driver) -> SandboxState | None:
    return next((one.state for one in driver.main.fleet.all if one.name == "app"), None)


def _said(log: Path) -> list[str]:
    """What the follower has told so far, in whole lines."""
    lines = [json.loads(line) for line in log.read_text().split("\n")[:-1]]
    return [line["text"] for line in lines if line["channel"] == "out"]
