"""What a comparison could not settle: it is looked at again, and told if it does not come to rest."""

from __future__ import annotations

import asyncio
import errno
import os
import time
from itertools import pairwise
from pathlib import Path

import pytest

from sbxtui.services.sync.link import LiveLink
from tests.services.sync.pairs import two_folders

SIZE_BYTES = 5 * 1024 * 1024


async def test_what_changed_while_it_was_sent_is_come_back_to_and_told_if_it_does_not_rest(tmp_path: Path) -> None:
    with two_folders(tmp_path) as two:
        path = two.here / "f"
        path.write_bytes(os.urandom(SIZE_BYTES))
        is_due = True

        def write(point: str) -> None:
            nonlocal is_due
            if point == "sending" and is_due:
                is_due = False
                path.write_bytes(os.urandom(SIZE_BYTES))

        two.guest.fault = write
        await two.cycle.compare()
        assert two.cycle.look_again == {b"f"} and not is_due
        is_due = True
        await two.cycle.come_back((0.0,))
        assert two.cycle.status.problems == {b"f": "changed_meanwhile"}
        await two.cycle.come_back((0.0, 0.0))
        assert not two.cycle.look_again and not two.cycle.status.problems
        assert (two.there / "f").read_bytes() == path.read_bytes()


def full(*_args: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


async def test_what_was_refused_is_told_until_it_is_there_also_when_it_is_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sbxtui.services.sync.cycle._MANY_PATHS", 2)
    with two_folders(tmp_path) as two:
        for number in range(3):
            (two.here / f"f{number}").write_bytes(bytes(SIZE_BYTES))
        with monkeypatch.context() as patch:
            patch.setattr("sbxguest.tree.blobs.write_all", full)
            await two.cycle.compare()
            refused = dict.fromkeys((b"f0", b"f1", b"f2"), "disk_full")
            assert two.cycle.status.problems == refused
            await two.cycle.follow(two.cycle.failed)
            assert two.cycle.status.problems == refused
        (two.here / "other").mkdir()
        await two.cycle.follow({b"other"})
        assert two.cycle.status.problems == refused and (two.there / "other").is_dir()
        (two.here / "f0").unlink()
        await two.cycle.follow({b"f0", b"f1"})
        assert two.cycle.status.problems == {b"f2": "disk_full"}
        await two.cycle.follow({b"f1", b"f2", b"other"})
        assert not two.cycle.status.problems
        assert sorted(path.name for path in two.there.iterdir()) == ["f1", "f2", "other"]


async def test_what_is_refused_again_and_again_is_sent_less_and_less_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent_s: list[float] = []
    fifth = asyncio.Event()

    def count(*_args: object) -> None:
        sent_s.append(time.monotonic())
        if len(sent_s) == 5:
            fifth.set()
        full()

    monkeypatch.setattr("sbxtui.services.sync.link._REFUSED_AGAIN_S", 0.1)
    monkeypatch.setattr("sbxguest.tree.blobs.write_all", count)
    with two_folders(tmp_path) as two:
        (two.here / "f").write_bytes(bytes(SIZE_BYTES))
        link = LiveLink(two.pair)
        async with asyncio.timeout(60):
            running = asyncio.create_task(link.run())
            await fifth.wait()
            link.stop()
            await running
        assert max(after_s - before_s for before_s, after_s in pairwise(sent_s)) > 0.3
