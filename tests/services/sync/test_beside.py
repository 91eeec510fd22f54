"""What goes on beside a link: its failure is never silent, and what the store refuses is tried again."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from sbxtui.core.errors import GuestUnreachable, StoreError
from sbxtui.core.model import SandboxId
from sbxtui.home import Home
from sbxtui.identity import own_identity
from sbxtui.services.sync.beside import beside
from sbxtui.services.sync.link import LiveLink
from sbxtui.services.sync.model import Mode
from sbxtui.services.sync.syncs import Syncs
from sbxtui.store.db import Store
from sbxtui.store.links import Link, Links, Wanted
from tests.services.sync.pairs import two_folders

DEADLINE_S = 60


async def test_the_first_failure_of_the_block_or_beside_it_ends_both() -> None:
    async def fail() -> None:
        raise ValueError("beside")

    with pytest.raises(ValueError, match="beside"):
        async with asyncio.timeout(DEADLINE_S), beside(fail()):
            await asyncio.Event().wait()
    is_cancelled = asyncio.Event()

    async def go_on() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            is_cancelled.set()

    with pytest.raises(GuestUnreachable):
        async with beside(go_on()):
            await asyncio.sleep(0)
            raise GuestUnreachable("the block")
    assert is_cancelled.is_set()


async def test_a_watch_that_breaks_ends_its_link(tmp_path: Path) -> None:
    with two_folders(tmp_path, mode=Mode.TWO_WAY) as two:

        def broken(point: str) -> None:
            if point == "listening":
                raise ValueError("a bug")

        two.guest.fault = broken
        link = LiveLink(two.pair, intake=two.taking_in)
        running = asyncio.create_task(link.run())
        with pytest.raises(ValueError, match="a bug"):
            async with asyncio.timeout(DEADLINE_S):
                while not running.done():
                    two.guest.tell(b"x")
                    await asyncio.wait((running,), timeout=0.05)
                await running


class _RefusingOnce(Links):
    """The links of a store that is locked at the first two tries."""

    refusals = 2

    def say(self, link: Link, status: Mapping[str, object]) -> None:
        if self.refusals:
            self.refusals -= 1
            raise StoreError("locked")
        super().say(link, status)


async def test_a_link_obeys_also_after_the_store_refused_something(tmp_path: Path) -> None:
    home = Home(*(tmp_path / name for name in ("config", "kept", "cache", "log")))
    store = Store.open(home)
    links = _RefusingOnce(store)
    with two_folders(tmp_path) as two:
        link = links.take(
            context="local",
            kind="sync",
            sandbox="box",
            sandbox_id=SandboxId("id"),
            spec={"root": str(two.here)},
            owner=str(own_identity()),
            actor="test",
        )
        live = LiveLink(two.pair)
        syncs = Syncs(home, None, links, "test")  # type: ignore[arg-type]  # no guest is asked
        links.want(link, Wanted.STOPPED, actor="test")
        async with asyncio.timeout(DEADLINE_S):
            await syncs._obey(link, live, two.pair)
        assert links.refusals == 0
    store.close()
