"""Folders of sandboxes under test: guest copies are made once a session."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.sandboxes import Place, make_place, point_to_runsc


@pytest.fixture(scope="session")
def images_dir() -> Iterator[Path]:
    """Where guest copies of this run are kept."""
    folder = Path(tempfile.mkdtemp(prefix="sbx-images-", dir="/tmp"))
    folder.chmod(0o711)
    point_to_runsc(folder)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def place(images_dir: Path) -> Iterator[Place]:
    """A folder of its own for the test's sandboxes."""
    with make_place(images_dir) as made:
        yield made
