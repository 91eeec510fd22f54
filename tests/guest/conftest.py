"""A guest for every test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.support.guest_process import GuestProcess
from tests.support.warm_guest import WarmGuest


@pytest.fixture(scope="session")
def warm_guest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmGuest]:
    """What keeps a guest from test to test."""
    warm = WarmGuest(tmp_path_factory.mktemp("guest"))
    yield warm
    warm.end()


@pytest.fixture
async def guest(warm_guest: WarmGuest) -> AsyncIterator[GuestProcess]:
    """A guest that answers and has nothing; nothing of the test stays in it."""
    yield await warm_guest.take()
    warm_guest.give_back()
