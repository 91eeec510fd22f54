"""A home of its own for every test, with short socket paths that are cleaned up."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from sbxtui.home import Home
from sbxtui.store.db import Store


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    """A home nobody used yet."""
    home = Home(tmp_path / "config", tmp_path / "state", tmp_path / "cache", tmp_path / "logs")
    yield home
    shutil.rmtree(home.socket_dir, ignore_errors=True)


@pytest.fixture
def store(home: Home) -> Iterator[Store]:
    """Its store, opened."""
    store = Store.open(home)
    yield store
    store.close()
