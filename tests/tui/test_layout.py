"""The screen at every size a terminal has."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace
from pathlib import Path

import pytest
from textual import _time

from sbxtui.core.model import SandboxId
from sbxtui.tui.widgets.table import FleetTable
from tests.support.fake_services import FakeCloud, sandbox
from tests.tui.driving import DEADLINE_S, dashboard


def two() -> FakeCloud:
    return FakeCloud(sandboxes=[sandbox("api"), sandbox("web")])


@pytest.mark.parametrize("size", [(80, 24), (119, 40)])
async def test_below_120_columns_the_detail_is_under_the_list(tmp_path: Path, size: tuple[int, int]) -> None:
    async with dashboard(tmp_path, two(), size=size) as driver:
        above, below = driver.main.query_one("#fleet").region, driver.main.query_one("#detail").region
        assert (above.x, above.width) == (below.x, below.width) == (0, size[0])
        assert below.y == above.bottom
        assert below.bottom == driver.main.query_one("#status").region.y


@pytest.mark.parametrize("size", [(120, 30), (160, 48), (300, 100)])
async def test_from_120_columns_they_are_side_by_side(tmp_path: Path, size: tuple[int, int]) -> None:
    async with dashboard(tmp_path, two(), size=size) as driver:
        left, right = driver.main.query_one("#fleet").region, driver.main.query_one("#detail").region
        assert (left.y, left.height) == (right.y, right.height)
        assert right.x == left.right and right.right == size[0]


@pytest.mark.parametrize("size", [(59, 24), (80, 14), (40, 10)])
async def test_small_screens_show_one_pane_and_keys_reach_the_other(tmp_path: Path, size: tuple[int, int]) -> None:
    async with dashboard(tmp_path, two(), size=size) as driver:
        fleet, detail = driver.main.query_one("#fleet"), driver.main.query_one("#detail")
        assert fleet.display and not detail.display
        await driver.press("enter")
        await driver.until(lambda: detail.display and not fleet.display)
        await driver.until(lambda: driver.main.focused is not None and detail in driver.main.focused.ancestors)
        await driver.press("escape")
        await driver.until(lambda: fleet.display and not detail.display)
        await driver.until(driver.is_in_list)


@pytest.mark.parametrize("size", [(39, 24), (80, 9), (10, 3), (1, 1)])
async def test_a_screen_too_small_for_anything_says_so(tmp_path: Path, size: tuple[int, int]) -> None:
    async with dashboard(tmp_path, two(), size=size) as driver:
        assert driver.main.query_one("#too-small").display
        assert not driver.main.query_one("#body").display


@pytest.mark.long
async def test_resizing_goes_through_every_layout_and_back(tmp_path: Path) -> None:
    async with dashboard(tmp_path, two(), size=(160, 48)) as driver:
        await driver.press("j")
        for size in ((30, 8), (50, 12), (80, 24), (300, 100), (1, 1), (100, 30)):
            await driver.pilot.resize_terminal(*size)
            await driver.pilot.pause()
        assert driver.main.fleet.cursor == 1
        assert "api" in driver.text() and "1 Overview" in driver.text()


@pytest.mark.parametrize("width", [40, 60, 80, 100, 160])
async def test_leaving_and_help_are_in_the_footer_at_every_width(tmp_path: Path, width: int) -> None:
    async with dashboard(tmp_path, two(), size=(width, 24)) as driver:
        footer = driver.text().splitlines()[23]
        assert "q quit" in footer and "? help" in footer


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
