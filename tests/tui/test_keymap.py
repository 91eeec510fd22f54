"""The registry of actions: keys, scopes, the person's own keys, the footer."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest

from sbxtui.settings import Settings, Ui
from sbxtui.tui.actions import EVERYWHERE, FILTER, LIST, ROWS, SANDBOXES, Action
from sbxtui.tui.keymap import Keymap, footer_actions
from sbxtui.tui.screens.main import MainScreen
from sbxtui.tui.tabs.registry import TABS, all_actions
from sbxtui.tui.widgets.fileview import FileView
from sbxtui.tui.widgets.lineinput import LineInput
from sbxtui.tui.widgets.output import OutputView
from sbxtui.tui.widgets.rows import RowList
from sbxtui.tui.widgets.table import FleetTable
from tests.support.fake_services import FakeCloud, home_at, sandbox
from tests.tui.driving import dashboard


def ids(actions: list[Action]) -> set[str]:
    return {action.id for action in actions}


def test_every_action_has_one_id_and_something_that_does_it() -> None:
    actions = all_actions()
    assert len({action.id for action in actions}) == len(actions)
    places = (MainScreen, FleetTable, RowList, OutputView, LineInput, FileView, *(spec.kind for spec in TABS))
    undone = [one.id for one in actions if not any(hasattr(place, f"do_{one.id}") for place in places)]
    assert [one for one in undone if not one.startswith("tab_")] == []


def test_where_scopes_work_together_no_key_means_two_things() -> None:
    together = [one for one in all_actions() if one.scope in (EVERYWHERE, SANDBOXES, LIST)]
    clashes = [
        (one.id, other.id)
        for one, other in combinations(together, 2)
        if set(one.keys.split(",")) & set(other.keys.split(","))
    ]
    assert clashes == []


def test_a_nearer_scope_takes_a_key_from_a_farther_one() -> None:
    keymap = Keymap(all_actions())
    assert "copy" in ids(keymap.here((LIST, SANDBOXES)))
    near = ids(keymap.here(("activity", ROWS, SANDBOXES)))
    assert "activity_copy" in near and "copy" not in near
    assert "row_open" not in near and "activity_open" in near


def test_while_a_line_is_typed_letters_belong_to_it() -> None:
    here = Keymap(all_actions()).here((FILTER,), is_typing=True)
    assert ids(here) == {"filter_keep", "back", "next_pane", "previous_pane", "suspend"}


def test_own_keys_are_laid_over_and_written_as_people_write_them() -> None:
    keymap = Keymap(all_actions(), {"remove": "x", "help": "?, f2", "sort": "!"})
    assert keymap.get("remove").keys == "x"  # type: ignore[union-attr]  # it is there
    assert keymap.get("help").keys == "question_mark,f2"  # type: ignore[union-attr]  # it is there
    assert keymap.problems == ["[keys] `sort` keeps s: ! already is `notes`"]


@pytest.mark.parametrize("own", [{"nosuch": "x"}, {"remove": "q"}, {"remove": ""}, {"line_run": "x"}])
def test_own_keys_that_cannot_be_are_told_and_not_followed(own: dict[str, str]) -> None:
    keymap = Keymap(all_actions(), own)
    assert len(keymap.problems) == 1
    assert keymap.actions == Keymap(all_actions()).actions


def test_read_only_leaves_out_everything_that_changes_something() -> None:
    keymap = Keymap(all_actions(), is_read_only=True)
    assert keymap.get("remove") is None and keymap.get("line_run") is None
    assert keymap.get("copy") is not None


def test_the_footer_keeps_the_way_out_whatever_the_width() -> None:
    here = Keymap(all_actions()).here((LIST, SANDBOXES))
    for width in range(10, 200):
        shown = footer_actions(width, here)
        assert shown[-1].id == "quit"
        assert sum(len(one.shown_key) + len(one.label) + 3 for one in shown) <= max(width, 9)


async def test_the_footer_lists_what_works_where_the_focus_is(tmp_path: Path) -> None:
    async with dashboard(tmp_path, FakeCloud(sandboxes=[sandbox("api")]), size=(120, 30)) as driver:

        def footer() -> str:
            return driver.text().splitlines()[29]

        assert "d remove" in footer() and "q quit" in footer()
        await driver.press("e")
        await driver.until(lambda: "enter run it" in footer())
        assert "d remove" not in footer() and "q quit" not in footer() and "esc back" in footer()
        await driver.press("escape", "slash")
        await driver.until(lambda: "enter keep it" in footer())
        assert "remove" not in footer()


async def test_own_keys_work_in_the_dashboard_and_its_footer(tmp_path: Path) -> None:
    settings = Settings(home=home_at(tmp_path), keys={"toggle_pause": "Q", "quit": "s"})
    cloud = FakeCloud(sandboxes=[sandbox("api")])
    async with dashboard(tmp_path, cloud, size=(120, 30), settings=settings) as driver:
        assert "Q pause" in driver.text().splitlines()[29]
        assert any("`quit` keeps q" in words for words in driver.toasts())
        await driver.press("Q")
        await driver.until(lambda: cloud.done == ["suspend api"])


async def test_read_only_says_so_and_changes_nothing(tmp_path: Path) -> None:
    settings = Settings(home=home_at(tmp_path), ui=Ui(read_only=True))
    cloud = FakeCloud(sandboxes=[sandbox("api")])
    async with dashboard(tmp_path, cloud, size=(120, 30), settings=settings) as driver:
        assert "read-only" in driver.text().splitlines()[0]
        await driver.press("p", "d", "n", "e", "R")
        await driver.pilot.pause()
        assert driver.app.screen is driver.main
        assert cloud.done == [] and cloud.created == []
        driver.main.act("remove")
        await driver.until(lambda: any("read-only" in words for words in driver.toasts()))
