"""Paths of this machine in the dashboard's lines: each letter that is typed is looked at, whatever it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from sbxtui.core.paths import at_home, is_folder
from sbxtui.tui.widgets.paths import LocalPaths


@pytest.mark.parametrize("text", ["~nobody-has-this-name", "x" * 5_000, "a\0b", "/dev/null", "/dev/null/x"])
async def test_what_can_lead_nowhere_is_no_folder_and_has_no_rest(text: str) -> None:
    assert not is_folder(at_home(text))
    assert await LocalPaths().get_suggestion(f"{text}/x") is None


async def test_a_folder_is_one_and_what_is_in_it_completes(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    assert is_folder(tmp_path)
    assert await LocalPaths().get_suggestion(f"{tmp_path}/ins") == f"{tmp_path}/inside/"
