"""What a job does while nobody reads it: hold, then let go; go on, or end."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from sbxguest import descriptors, wire
from sbxguest.initclient import InitClient
from sbxguest.job import Job, JobParts
from sbxguest.joblimits import JobGroup
from sbxguest.joblog import JobLog
from sbxguest.link import Link, make_pair
from sbxguest.runclock import RunClock

RING = 64 * wire.KIB
Make = Callable[..., tuple[Job, int, Link]]


@pytest.fixture
async def make(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Make]:
    """Jobs over real pipes and a real link whose other end, init's, is the test."""
    monkeypatch.setattr(wire, "HOLD_GRACE_S", 0.1)
    made: list[tuple[Job, int, Link]] = []

    def make(**shown: Any) -> tuple[Job, int, Link]:
        server_end, init_end = make_pair()
        document = {
            "id": "j",
            "log": "hold",
            "on_disconnect": "keep",
            "timeout_s": 0,
            "kill_grace_s": 0,
            "stdin": "none",
            **shown,
        }
        log = JobLog.create("j", ring_bytes=RING, meta=json.dumps(document).encode())
        out_r, out_w = os.pipe()
        init = InitClient(server_end.detach())
        parts = JobParts(log, {"out_r": out_r}, JobGroup("none", may_group=False))
        new = Job(document, "digest", parts, init=init, clock=RunClock())
        new.start_pumps()
        new.on_init({"op": "started", "pid": 1})
        made.append((new, out_w, Link(init_end)))
        return made[-1]

    yield make
    for made_job, out_w, link in made:
        made_job.close()
        descriptors.close_all([out_w])
        link.close()


def _fill(pipe: int) -> int:
    """Write until the pipe takes no more."""
    os.set_blocking(pipe, False)
    written = 0
    try:
        while True:
            written += os.write(pipe, bytes(16 * 1024))
    except BlockingIOError:
        return written


async def _fill_all(filled: Job, pipe: int, *, until_bytes: int) -> int:
    written = 0
    async with asyncio.timeout(5):
        while filled.log.total < until_bytes:
            written += _fill(pipe)
            await asyncio.sleep(0.001)
    return written


async def test_a_held_job_stops_reading_when_its_ring_is_full_and_goes_on_when_it_was_read(make: Make) -> None:
    held, pipe, _link = make()
    full = wire.HEAD_BYTES + RING
    with held.watched(holds=True) as reader:
        await _fill_all(held, pipe, until_bytes=full)
        _fill(pipe)
        for _ in range(20):
            await asyncio.sleep(0.01)
        assert held.log.total == full
        held.acknowledge(full - 1000, reader)
        await _fill_all(held, pipe, until_bytes=full + RING - 1000)
        assert held.log.total == full + RING - 1000


async def test_a_held_job_nobody_comes_back_for_becomes_a_ring(make: Make) -> None:
    held, pipe, _link = make()
    full = wire.HEAD_BYTES + RING
    await _fill_all(held, pipe, until_bytes=full)
    await _fill_all(held, pipe, until_bytes=3 * full)
    assert held.log.floor > wire.HEAD_BYTES


async def _is_stuck_at(held: Job, pipe: int, total: int) -> bool:
    for _ in range(20):
        _fill(pipe)
        await asyncio.sleep(0.005)
    return held.log.total == total


async def test_a_job_waits_for_the_slowest_of_its_readers(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "HOLD_GRACE_S", 60)
    held, pipe, _link = make()
    full = wire.HEAD_BYTES + RING
    with held.watched(holds=True, reader="slow") as slow:
        await _fill_all(held, pipe, until_bytes=full)
        with held.watched(holds=True, reader="fast") as fast:
            held.acknowledge(full, fast)
            assert await _is_stuck_at(held, pipe, full)
        held.acknowledge(full - 1000, slow)
        await _fill_all(held, pipe, until_bytes=full + RING - 1000)
        assert held.log.floor == full - 1000


async def test_a_reader_between_two_requests_is_waited_for_although_another_is_ahead(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "HOLD_GRACE_S", 60)
    held, pipe, _link = make()
    full = wire.HEAD_BYTES + RING
    for name in ("slow", ""):
        with held.watched(holds=True, reader=name):
            await _fill_all(held, pipe, until_bytes=full)
    with held.watched(holds=True, reader="fast") as fast:
        held.acknowledge(full, fast)
        assert await _is_stuck_at(held, pipe, full)
        with held.watched(holds=True, cursor=full - 1000, reader="slow"):
            assert await _is_stuck_at(held, pipe, full)
            with held.watched(holds=True, cursor=full):
                held.use_room()
                await _fill_all(held, pipe, until_bytes=full + RING - 1000)
                assert held.log.floor == full - 1000


async def test_a_reader_that_stays_away_is_waited_for_no_longer_than_the_grace(make: Make) -> None:
    held, pipe, _link = make()
    full = wire.HEAD_BYTES + RING
    with held.watched(holds=True, reader="slow"):
        await _fill_all(held, pipe, until_bytes=full)
    with held.watched(holds=True, reader="fast") as fast:
        held.acknowledge(full, fast)
        await _fill_all(held, pipe, until_bytes=full + RING)
        assert await _is_stuck_at(held, pipe, full + RING)


async def test_a_watcher_that_does_not_hold_slows_nothing(make: Make) -> None:
    held, pipe, _link = make(log="ring")
    with held.watched(holds=False):
        await _fill_all(held, pipe, until_bytes=4 * RING)


async def test_a_job_that_ends_with_its_caller_is_killed_when_nobody_watches_it(make: Make) -> None:
    held, _pipe, link = make(on_disconnect="kill", log="ring")
    with held.watched(holds=False):
        await asyncio.sleep(0.3)
        assert [message for message, _fds in link.receive()] == []
    async with asyncio.timeout(5):
        while not (told := [message for message, _fds in link.receive()]):
            await asyncio.sleep(0.01)
    assert told[0] == {"op": "signal", "job": "j", "sig": 9, "to": "tree"}


async def test_exit_waits_for_a_reader_of_what_is_still_in_the_pipe(make: Make) -> None:
    held, pipe, _link = make()
    full = wire.HEAD_BYTES + RING
    with held.watched(holds=True) as reader:
        await _fill_all(held, pipe, until_bytes=full)
        rest = _fill(pipe)
        os.close(pipe)
        held.on_init({"op": "exit", "code": 3})
        for _ in range(30):
            await asyncio.sleep(0.01)
        assert not held.is_finished
        async with asyncio.timeout(5):
            while not held.is_finished:
                held.acknowledge(held.log.total, reader)
                await held.changed()
    assert held.exit["code"] == 3
    assert held.log.total == full + rest
