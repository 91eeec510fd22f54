"""One real guest per test, and the parts tests ask of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.guest_process import GuestProcess, running_guest


@pytest.fixture
async def guest(tmp_path: Path) -> AsyncIterator[GuestProcess]:
    """A guest that answers; ended with all its jobs after the test."""
    async with running_guest(tmp_path) as process:
        yield process
