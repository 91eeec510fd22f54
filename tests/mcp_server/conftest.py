"""A home in which nothing ever ran."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.sbx import Sbx


@pytest.fixture
def bare(tmp_path: Path) -> Sbx:
    """A home in which nothing ever runs: no backend is there to be asked."""
    home = tmp_path / "home"
    home.mkdir()
    return Sbx(home)
