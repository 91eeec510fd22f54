"""Watching: one poller, woken by the doorbell, patient with a control plane that does not answer."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path

import pytest

from sbxtui.core.errors import Throttled
from sbxtui.home import Home
from sbxtui.services import watch as watching
from sbxtui.services.watch import Watch
from sbxtui.settings import Settings
from sbxtui.store.db import Store
from sbxtui.store.events import Events
from tests.support.fake_services import LOCAL, FakeCloud, FakeServices, sandbox

DEADLINE_S = 10.0


@pytest.fixture
def home() -> Iterator[Home]:
    """A home with short socket paths."""
    with tempfile.TemporaryDirectory(prefix="sbxt-") as folder:
        root = Path(folder)
        yield Home(root / "config", root / "state", root / "cache", root / "logs")


def watch_of(home: Home, cloud: FakeCloud) -> Watch:
    return FakeServices(Settings(home=home), cloud).watch


async def test_the_first_look_is_at_once_and_the_next_without_being_asked(home: Home) -> None:
    cloud = FakeCloud(sandboxes=[sandbox("a")])
    async with asyncio.timeout(DEADLINE_S), aclosing(watch_of(home, cloud).follow(LOCAL)) as looks:
        assert [one.name for one in (await anext(looks)).sandboxes] == ["a"]
        cloud.sandboxes = []
        assert (await anext(looks)).sandboxes == ()


async def test_a_commit_of_anybody_wakes_it_long_before_its_time(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "LOOKING_EVERY_S", 1_000.0)
    store = Store.open(home)
    async with asyncio.timeout(DEADLINE_S), aclosing(watch_of(home, FakeCloud()).follow(LOCAL)) as looks:
        await anext(looks)
        next_look = asyncio.ensure_future(anext(looks))
        Events(store).record(context="local", kind="test.rung", subject="x", actor="test")
        await next_look
    store.close()


async def test_being_asked_ends_any_pause(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "LOOKING_EVERY_S", 1_000.0)
    cloud = FakeCloud(error=Throttled("slow down"))
    watch = watch_of(home, cloud)
    async with asyncio.timeout(DEADLINE_S), aclosing(watch.follow(LOCAL)) as looks:
        assert (await anext(looks)).error is cloud.error
        next_look = asyncio.ensure_future(anext(looks))
        watch.look_now()
        await next_look


async def test_it_backs_off_while_the_control_plane_fails_and_recovers_at_once(home: Home) -> None:
    cloud = FakeCloud(error=Throttled("slow down"))
    watch = watch_of(home, cloud)
    pauses_s = []
    async with asyncio.timeout(DEADLINE_S), aclosing(watch.follow(LOCAL)) as looks:
        for _ in range(8):
            watch.look_now()
            await anext(looks)
            pauses_s.append(watch.pause_s)
        cloud.error = None
        watch.look_now()
        await anext(looks)
    assert pauses_s == [2, 4, 8, 16, 30, 30, 30, 30]
    assert watch.pause_s == watching.LOOKING_EVERY_S


async def test_it_looks_less_often_the_longer_nothing_happens(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    often_s, calm_s, still_s = 0.001, 0.002, 0.003
    for name, pause_s in (
        ("_SHORTEST_PAUSE_S", 0.0),
        ("LOOKING_EVERY_S", often_s),
        ("CALM_EVERY_S", calm_s),
        ("STILL_EVERY_S", still_s),
    ):
        monkeypatch.setattr(watching, name, pause_s)
    watch = watch_of(home, FakeCloud(sandboxes=[sandbox("a")]))
    pauses_s = []
    async with asyncio.timeout(DEADLINE_S), aclosing(watch.follow(LOCAL)) as looks:
        async for _ in looks:
            pauses_s.append(watch.pause_s)
            if len(pauses_s) == 22:
                break
    assert pauses_s == [often_s] * 3 + [calm_s] * 17 + [still_s] * 2
    watch.look_now()
    assert watch.pause_s == often_s


def test_it_looks_less_often_when_nobody_sees_it(home: Home) -> None:
    watch = watch_of(home, FakeCloud())
    watch.set_looked_at(False)
    assert watch.pause_s == watching.AWAY_EVERY_S
    watch.set_looked_at(True)
    assert watch.pause_s == watching.LOOKING_EVERY_S


async def test_a_control_plane_that_hangs_is_an_error_with_what_was_seen_before(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "_LOOK_DEADLINE_S", 0.01)
    cloud = FakeCloud(sandboxes=[sandbox("a")], gate=asyncio.Event())
    async with asyncio.timeout(DEADLINE_S), aclosing(watch_of(home, cloud).follow(LOCAL)) as looks:
        inventory = await anext(looks)
    assert inventory.error is not None and "did not answer" in inventory.error.message
    assert [one.name for one in inventory.sandboxes] == ["a"]


async def test_closing_it_leaves_no_doorbell_behind(home: Home) -> None:
    async with asyncio.timeout(DEADLINE_S), aclosing(watch_of(home, FakeCloud()).follow(LOCAL)) as looks:
        await anext(looks)
        assert list(home.bells_dir.iterdir())
    assert list(home.bells_dir.iterdir()) == []
