"""Pressing the key of an action and seeing what it does: scenes, in which acts follow each other in one dashboard."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from textual.screen import Screen

from sbxtui.settings import Settings
from sbxtui.tui.tabs.registry import all_actions
from tests.support.fake_services import FakeCloud
from tests.tui.driving import Driver

Seen = Callable[[Driver], object]


@dataclass(frozen=True, slots=True)
class Act:
    """One press of an action's key.

    Args:
        id: The action's.
        is_done: Whether its effect is there: not before its key is pressed, and soon after.
        before: Keys that go to where it works.
        arrange: Called before those.
        is_ready: What else must be so before the key means anything.
    """

    id: str
    is_done: Seen
    before: tuple[str, ...] = ()
    arrange: Callable[[Driver], object] = lambda driver: None
    is_ready: Seen = lambda driver: True


@dataclass(frozen=True, slots=True)
class Scene:
    """Acts in one dashboard, in order; each goes on where the one before ended."""

    cloud: FakeCloud
    acts: tuple[Act, ...]
    size: tuple[int, int] = (100, 30)
    settings: Settings | None = field(default=None)


def key_of_action(action_id: str) -> str:
    """The first key of an action, as textual names it."""
    return next(action.keys for action in all_actions() if action.id == action_id).split(",")[0]


async def perform(driver: Driver, act: Act) -> None:
    """Press the key where it works, and wait until it has done what it does."""
    act.arrange(driver)
    await driver.press(*act.before)
    await driver.pilot.pause()
    await _until(driver, act.is_ready, f"`{act.id}` cannot be pressed")
    key = key_of_action(act.id)
    here = {action.id for action in driver.main.actions_here() if key in action.keys.split(",")}
    assert here == {act.id}, f"`{key}` does {here or 'nothing'} here"
    assert not act.is_done(driver), f"what `{act.id}` does was done before"
    await driver.press(key)
    await _until(driver, act.is_done, f"`{key}` does not do `{act.id}`")


async def _until(driver: Driver, is_so: Seen, otherwise: str) -> None:
    try:
        await driver.until(lambda: is_so(driver))
    except TimeoutError as exc:
        raise AssertionError(f"{otherwise}:\n{driver.text()}") from exc


def is_asked(kind: type[Screen[Any]], title: str = "") -> Seen:
    """Whether a dialog of a kind stands over the dashboard, with `title` on it."""
    return lambda driver: isinstance(driver.app.screen, kind) and title in driver.text()


def is_copied(text: str) -> Seen:
    return lambda driver: driver.app.clipboard == text


def has_focus(kind: type[object]) -> Seen:
    return lambda driver: isinstance(driver.main.focused, kind)


def to_tab(tab_id: str) -> tuple[str, str]:
    """Keys that go into a tab from the list."""
    return key_of_action(f"tab_{tab_id}"), key_of_action("next_pane")
