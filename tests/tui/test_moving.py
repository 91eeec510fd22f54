"""Moving about: cursor, filter, sort, panes, tabs, pages, and the way back."""

from __future__ import annotations

from pathlib import Path

import pytest

from sbxtui.core.model import SandboxState
from sbxtui.tui.screens.create import CreateScreen
from sbxtui.tui.screens.page import PageScreen
from sbxtui.tui.tabs.registry import all_actions
from sbxtui.tui.themes import DEFAULT_THEME, THEME_NAMES
from sbxtui.tui.widgets.panes import DetailPane, FilterInput
from tests.support.fake_services import FakeCloud, sandbox
from tests.tui.driving import dashboard, tab_key


def three() -> FakeCloud:
    return FakeCloud(sandboxes=[sandbox("api"), sandbox("etl", SandboxState.SUSPENDED), sandbox("web")])


async def test_the_filter_filters_while_typing_and_escape_goes_back_up(tmp_path: Path) -> None:
    async with dashboard(tmp_path, three()) as driver:
        await driver.press("slash", *"state:susp")
        await driver.until(lambda: [one.name for one in driver.main.fleet.rows] == ["etl"])
        assert "Sandboxes 1/3" in driver.text()
        await driver.press("enter")
        assert len(driver.main.fleet.rows) == 1
        assert not driver.main.query_one(FilterInput).display
        assert "Sandboxes 1/3 · /state:susp" in driver.text()
        await driver.press("escape")
        await driver.until(lambda: len(driver.main.fleet.rows) == 3)


async def test_marks_are_cleared_before_the_filter_by_escape(tmp_path: Path) -> None:
    async with dashboard(tmp_path, three()) as driver:
        await driver.press("slash", "a", "enter", "space")
        assert driver.main.fleet.marks
        await driver.press("escape")
        assert not driver.main.fleet.marks
        assert driver.main.fleet.filter.text == "a"
        await driver.press("escape")
        await driver.until(lambda: driver.main.fleet.filter.text == "")


async def test_sorting_goes_by_key_and_by_a_click_on_a_column(tmp_path: Path) -> None:
    async with dashboard(tmp_path, three()) as driver:
        await driver.press("s")
        assert driver.main.fleet.sort == "name"
        await driver.pilot.click("#table", offset=(6, 0))
        await driver.until(lambda: driver.main.fleet.sort == "-name")
        assert [one.name for one in driver.main.fleet.rows] == ["web", "etl", "api"]


async def test_a_click_selects_and_a_second_one_opens_the_detail(tmp_path: Path) -> None:
    async with dashboard(tmp_path, three()) as driver:
        await driver.pilot.click("#table", offset=(6, 2))
        assert driver.main.fleet.cursor == 1
        await driver.pilot.click("#table", offset=(6, 2), times=2)
        await driver.until(lambda: driver.main.has_class("-detail-front"))


async def test_the_cursor_moves_by_letters_arrows_and_pages(tmp_path: Path) -> None:
    cloud = FakeCloud(sandboxes=[sandbox(f"s{number:03}") for number in range(200)])
    async with dashboard(tmp_path, cloud, size=(80, 24)) as driver:
        fleet = driver.main.fleet
        await driver.press("j", "down", "k")
        assert fleet.cursor == 1
        await driver.press("G")
        assert fleet.cursor == 199
        assert "s199" in driver.text()
        await driver.press("pageup")
        assert fleet.cursor < 199
        await driver.press("g", "pagedown")
        assert 0 < fleet.cursor < 20
        assert f"s{fleet.cursor:03}" in driver.text()


async def test_help_lists_every_action_and_escape_leaves_it(tmp_path: Path) -> None:
    async with dashboard(tmp_path, three(), size=(120, 60)) as driver:
        await driver.press("question_mark")
        page = driver.app.screen
        assert isinstance(page, PageScreen)
        assert [one.id for one in all_actions() if one.label not in page.text] == []
        assert [one.id for one in all_actions() if not one.is_native and one.id not in page.text] == []
        await driver.press("escape")
        assert driver.app.screen is driver.main


async def test_the_palette_finds_an_action_and_does_it(tmp_path: Path) -> None:
    async with dashboard(tmp_path, three()) as driver:
        await driver.press("colon")
        await driver.until(lambda: len(driver.app.screen_stack) == 2)
        await driver.press(*"new")
        await driver.until(lambda: "Makes a sandbox" in driver.text())
        await driver.press("enter")
        await driver.until(lambda: isinstance(driver.app.screen, CreateScreen))


async def test_the_theme_goes_round(tmp_path: Path) -> None:
    async with dashboard(tmp_path, three()) as driver:
        seen = []
        for _ in THEME_NAMES:
            seen.append(driver.app.theme)
            await driver.press("T")
        assert tuple(seen) == THEME_NAMES
        assert driver.app.theme == DEFAULT_THEME


async def test_panes_tabs_and_zoom_are_reached_and_left_by_keys(tmp_path: Path) -> None:
    async with dashboard(tmp_path, three()) as driver:
        await driver.press(tab_key("shell"), "tab")
        await driver.until(lambda: driver.main.focused is not None and driver.main.focused.id == "line")
        await driver.press("escape")
        await driver.until(lambda: driver.main.focused is not None and driver.main.focused.id == "table")
        await driver.press("z")
        await driver.until(lambda: not driver.main.query_one("#detail").display or driver.main.has_class("-zoomed"))
        await driver.press("escape")
        assert not driver.main.has_class("-zoomed")


async def test_a_tab_is_opened_by_a_click_on_its_name(tmp_path: Path) -> None:
    async with dashboard(tmp_path, three(), size=(100, 30)) as driver:
        x, y = driver.main.query_one("#detail").region.offset
        label = driver.text().splitlines()[y].index(f"{tab_key('shell')} Shell")
        await driver.pilot.click(offset=(max(label, x) + 2, y))
        await driver.until(lambda: driver.main.query_one(DetailPane).current == "shell")


async def test_a_key_in_the_footer_can_be_clicked(tmp_path: Path) -> None:
    async with dashboard(tmp_path, three(), size=(100, 30)) as driver:
        x = driver.text().splitlines()[29].index("? help")
        await driver.pilot.click(offset=(x + 3, 29))
        await driver.until(lambda: isinstance(driver.app.screen, PageScreen))


@pytest.mark.parametrize("dialog", ["n", "d", "question_mark", "colon", "i", "slash", "e"])
async def test_escape_leads_from_everywhere_back_to_the_list(tmp_path: Path, dialog: str) -> None:
    async with dashboard(tmp_path, three()) as driver:
        await driver.press(dialog)
        await driver.until(lambda: not driver.is_in_list())
        for _ in range(3):
            await driver.press("escape")
        await driver.until(driver.is_in_list)
