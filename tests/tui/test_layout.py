"""The screen at every size a terminal has."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from textual import _time

from sbxtui.core.model import SandboxId
from sbxtui.tui.widgets.table import FleetTable
from tests.support.fake_services import FakeCloud, sandbox
from tests.tui.driving import DEADLINE_S, Driver, dashboard


def two() -> FakeCloud:
    return FakeCloud(sandboxes=[sandbox("api"), sandbox("web")])


@pytest.mark.long
async def test_every_size_of_a_terminal_has_its_layout_and_footer(tmp_path: Path) -> None:
    async with dashboard(tmp_path, two(), size=(160, 48)) as driver:
        fleet, detail = driver.main.query_one("#fleet"), driver.main.query_one("#detail")
        await driver.press("j")
        for size, check in (
            *((size, is_stacked) for size in ((80, 24), (119, 40))),
            *((size, is_side_by_side) for size in ((120, 30), (160, 48), (300, 100))),
            *((size, is_one_pane) for size in ((59, 24), (80, 14), (40, 10))),
            *((size, is_too_small) for size in ((39, 24), (80, 9), (10, 3), (1, 1), (30, 8))),
            *((size, has_its_footer) for size in ((40, 24), (60, 24), (80, 24), (100, 24), (160, 24))),
        ):
            await driver.pilot.resize_terminal(*size)
            await driver.until(partial(check, driver, size))
            if check is is_one_pane:
                await driver.press("enter")
                await driver.until(lambda: detail.display and not fleet.display)
                await driver.until(lambda: driver.main.focused is not None and detail in driver.main.focused.ancestors)
                await driver.press("escape")
                await driver.until(lambda: fleet.display and not detail.display)
                await driver.until(driver.is_in_list)
        assert driver.main.fleet.cursor == 1
        assert "api" in driver.text() and "1 Overview" in driver.text()


@pytest.mark.parametrize("size", [(1, 1), (59, 24), (80, 24)])
async def test_a_dashboard_opens_at_any_size(tmp_path: Path, size: tuple[int, int]) -> None:
    async with dashboard(tmp_path, two(), size=size) as driver:
        assert {(1, 1): is_too_small, (59, 24): is_one_pane, (80, 24): is_stacked}[size](driver, size)


async def test_what_had_the_focus_has_it_again_after_a_moment_without_room(tmp_path: Path) -> None:
    async with dashboard(tmp_path, two(), size=(80, 24)) as driver:
        for key, widget in (("j", "FleetTable"), ("e", "LineInput")):
            await driver.press(key)
            await driver.until(partial(has_focus, driver, widget))
            await driver.pilot.resize_terminal(30, 8)
            await driver.until(lambda: driver.main.focused is None)
            await driver.pilot.resize_terminal(80, 24)
            await driver.until(partial(has_focus, driver, widget))


def has_focus(driver: Driver, widget: str) -> bool:
    return type(driver.main.focused).__name__ == widget


def is_stacked(driver: Driver, size: tuple[int, int]) -> bool:
    above, below = driver.main.query_one("#fleet").region, driver.main.query_one("#detail").region
    is_full = (above.x, above.width) == (below.x, below.width) == (0, size[0])
    return is_full and below.y == above.bottom and below.bottom == driver.main.query_one("#status").region.y


def is_side_by_side(driver: Driver, size: tuple[int, int]) -> bool:
    left, right = driver.main.query_one("#fleet").region, driver.main.query_one("#detail").region
    is_level = (left.y, left.height) == (right.y, right.height)
    return is_level and right.x == left.right and right.right == size[0]


def is_one_pane(driver: Driver, size: tuple[int, int]) -> bool:
    fleet, detail = driver.main.query_one("#fleet"), driver.main.query_one("#detail")
    return fleet.display and not detail.display and driver.main.size.width == size[0]


def is_too_small(driver: Driver, size: tuple[int, int]) -> bool:
    return driver.main.query_one("#too-small").display and not driver.main.query_one("#body").display


def has_its_footer(driver: Driver, size: tuple[int, int]) -> bool:
    lines = driver.text().splitlines()
    return len(lines) == size[1] and "q quit" in lines[-1] and "? help" in lines[-1]


async def test_columns_are_those_of_the_width_whenever_it_comes(tmp_path: Path) -> None:
    async with dashboard(tmp_path, two(), size=(80, 24)) as driver:
        table = driver.main.query_one(FleetTable)
        table._lay_out(0)
        assert "ISOLATION" in table.render_line(0).text


async def test_an_id_stands_on_one_line_beside_the_list(tmp_path: Path) -> None:
    long_id = SandboxId("microvm-01234567-89ab-cdef-0123-456789abcdef")
    cloud = FakeCloud(sandboxes=[replace(sandbox("api"), id=long_id)])
    async with dashboard(tmp_path, cloud, size=(120, 40)) as driver:
        await driver.until(lambda: long_id in driver.text())


async def test_what_waits_for_a_moment_goes_on_even_if_the_machine_was_busy_for_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rang = asyncio.Event()
    real, late_s = _time.get_time, itertools.count(step=60)

    def time_s() -> float:
        task = asyncio.current_task()
        now_s: float = real()
        return now_s + (next(late_s) if task is not None and task.get_name() == "late" else 0)

    async with dashboard(tmp_path, two()) as driver:
        monkeypatch.setattr(_time, "get_time", time_s)
        # As the timer that a new size waits for: one that never rings would let no size count again.
        driver.app.set_timer(0.01, rang.set, name="late")
        async with asyncio.timeout(DEADLINE_S):
            await rang.wait()


async def test_the_header_tells_more_as_soon_as_there_is_room(tmp_path: Path) -> None:
    words = "gVisor (user-space kernel)  1 running"
    cloud = FakeCloud(sandboxes=[sandbox("api")], isolation="gVisor (user-space kernel)")
    async with dashboard(tmp_path, cloud, size=(120, 24)) as driver:
        await driver.until(lambda: words in driver.text().splitlines()[0])
        await driver.pilot.resize_terminal(20, 5)
        await driver.until(lambda: "needs a screen" in driver.text())
        await driver.pilot.resize_terminal(120, 24)
        await driver.until(lambda: words in driver.text().splitlines()[0])
