"""One home with a local cloud for all tests of a file, and one in which nothing ever ran."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.sbx import Sbx, sbx_home


@pytest.fixture(scope="module")
def sbx(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sbx]:
    """An `sbx` shared by the tests of a file."""
    with sbx_home(tmp_path_factory.mktemp("home")) as shared:
        yield shared


@pytest.fixture
def bare(tmp_path: Path) -> Sbx:
    """A home in which nothing ever runs: no backend is there to be asked."""
    home = tmp_path / "home"
    home.mkdir()
    return Sbx(home)
