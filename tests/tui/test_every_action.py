"""Every action has a key, and its key does what it says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sbxtui.tui.tabs.registry import all_actions
from tests.tui.acting import Scene, perform
from tests.tui.driving import dashboard
from tests.tui.scenes import SCENES

pytestmark = pytest.mark.long


def test_every_action_has_a_key_and_a_scene_in_which_it_is_pressed(tmp_path: Path) -> None:
    ids = [action.id for action in all_actions()]
    assert len(ids) == len(set(ids))
    assert [action.id for action in all_actions() if not all(action.keys.split(","))] == []
    pressed = {act.id for at, make in enumerate(SCENES) for act in make(tmp_path / str(at)).acts}
    assert set(ids) - pressed == set(), "no scene presses these"
    assert pressed - set(ids) == set(), "there are no such actions"


@pytest.mark.parametrize("make", SCENES, ids=lambda make: make.__name__)
async def test_the_key_of_every_action_does_what_it_says(make: Callable[[Path], Scene], tmp_path: Path) -> None:
    scene = make(tmp_path)
    async with dashboard(tmp_path, scene.cloud, size=scene.size, settings=scene.settings) as driver:
        for act in scene.acts:
            await perform(driver, act)
