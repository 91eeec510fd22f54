"""One home for the fault tests of a file; each test uses names of its own."""

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


@pytest.fixture(scope="module")
def app(sbx: Sbx) -> str:
    """The name of a running sandbox shared by the tests of a file; they leave it running."""
    return sbx.ok("create", "app", "--memory", "512").out


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Sbx]:
    """An `sbx` whose home a test may break."""
    with sbx_home(tmp_path / "home") as one:
        yield one
