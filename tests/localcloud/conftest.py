"""Local clouds that several tests of a module share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.local_cloud import LocalCloud, local_cloud


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCloud]:
    """A local cloud whose sandboxes are plain processes: the test's own servers are what they can reach."""
    with local_cloud(tmp_path_factory.mktemp("cloud"), "--runtime", "process", "--exit-when-idle", "0") as started:
        yield started


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder for a cloud of one test."""
    return tmp_path
