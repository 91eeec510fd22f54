"""Waking listeners: by bell, by polling, and whatever state the bells folder is in."""

from __future__ import annotations

import asyncio
import os
import socket
import stat

import pytest

from sbxtui.home import Home
from sbxtui.store.db import Store
from sbxtui.store.doorbell import Listener, ring
from sbxtui.store.events import Events
from sbxtui.store.registry import Registry
from tests.store.worker import record

NEVER_POLL_S = 3_600.0


def _change(store: Store) -> None:
    Events(store).record(context="local", kind="test", subject="x", actor="test")


async def test_a_commit_wakes_a_listener_without_polling(home: Home, store: Store) -> None:
    async with asyncio.timeout(15), Listener(home, poll_s=NEVER_POLL_S) as listener:
        await asyncio.to_thread(_change, store)
        assert await listener.wait()


async def test_many_commits_between_two_looks_are_one_wake_up(home: Home, store: Store) -> None:
    async with asyncio.timeout(15), Listener(home, poll_s=NEVER_POLL_S) as listener:
        for _ in range(200):
            _change(store)
        assert await listener.wait()
        assert not await listener.wait(0.05)


async def test_reading_wakes_nobody(home: Home, store: Store) -> None:
    async with asyncio.timeout(15), Listener(home, poll_s=NEVER_POLL_S) as listener:
        Registry(store).list()
        assert not await listener.wait(0.05)


async def test_a_change_that_is_rolled_back_wakes_nobody(home: Home, store: Store) -> None:
    async with asyncio.timeout(15), Listener(home, poll_s=NEVER_POLL_S) as listener:
        with pytest.raises(ZeroDivisionError), store.transaction() as transaction:
            transaction.execute("INSERT INTO meta VALUES ('a', 'b')")
            raise ZeroDivisionError
        assert not await listener.wait(0.05)
    assert store.rows("SELECT * FROM meta WHERE key = 'a'") == []


async def test_a_lost_ring_is_made_up_for_by_polling(home: Home, store: Store) -> None:
    async with asyncio.timeout(15), Listener(home, poll_s=0.01) as listener:
        for bell in home.bells_dir.iterdir():
            bell.unlink()
        await asyncio.to_thread(_change, store)
        assert await listener.wait()
        assert not await listener.wait(0.05)


async def test_a_store_made_after_listening_began_is_noticed(home: Home) -> None:
    async with asyncio.timeout(15), Listener(home, poll_s=0.01) as listener:
        store = await asyncio.to_thread(Store.open, home)
        assert await listener.wait()
        store.close()


async def test_iterating_gives_one_item_per_wake_up(home: Home, store: Store) -> None:
    seen = 0
    async with asyncio.timeout(15), Listener(home, poll_s=NEVER_POLL_S) as listener:
        _change(store)
        async for _ in listener:
            seen += 1
            if seen == 3:
                break
            _change(store)
    assert seen == 3


async def test_leaving_takes_the_bell_down(home: Home, store: Store) -> None:
    async with Listener(home):
        assert len(list(home.bells_dir.iterdir())) == 1
    assert list(home.bells_dir.iterdir()) == []


async def test_the_bells_folder_is_private(home: Home) -> None:
    async with Listener(home):
        assert stat.S_IMODE(home.bells_dir.stat().st_mode) == 0o700


async def test_ringing_removes_the_bells_of_dead_listeners_and_reaches_living_ones(home: Home, store: Store) -> None:
    async with asyncio.timeout(15), Listener(home, poll_s=NEVER_POLL_S) as listener:
        dead = home.bells_dir / "999-dead"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as left_behind:
            left_behind.bind(os.fspath(dead))
        (home.bells_dir / "no-socket").write_text("")
        assert ring(home) == 1
        assert await listener.wait()
        assert not dead.exists()


async def test_a_listener_that_never_looks_does_not_block_ringing(home: Home, store: Store) -> None:
    home.bells_dir.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as deaf:
        deaf.bind(os.fspath(home.bells_dir / "1-deaf"))
        for _ in range(5_000):
            assert ring(home) == 1


def test_ringing_a_home_without_listeners_is_harmless(home: Home) -> None:
    assert ring(home) == 0


async def test_without_a_place_for_bells_polling_alone_works(home: Home, store: Store) -> None:
    home.socket_dir.parent.mkdir(parents=True, exist_ok=True)
    home.socket_dir.write_text("in the way")
    try:
        async with asyncio.timeout(15), Listener(home, poll_s=0.01) as listener:
            await asyncio.to_thread(_change, store)
            assert await listener.wait()
    finally:
        home.socket_dir.unlink()


async def test_a_cancelled_wait_leaves_the_listener_usable(home: Home, store: Store) -> None:
    async with asyncio.timeout(15), Listener(home, poll_s=NEVER_POLL_S) as listener:
        waiting = asyncio.create_task(listener.wait())
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        Registry(store).adopt("local", "calm-otter", record("microvm-1"), actor="test")
        assert await listener.wait()
