"""Requests that overlap: their answers keep their order, and a failure leaves none behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path

import pytest

from sbxtui.services.sync.ahead import one_ahead
from tests.services.sync.pairs import two_folders

DEADLINE_S = 60


async def test_the_next_request_begins_when_one_is_sent_and_answers_keep_their_order() -> None:
    log: list[str] = []
    answered = [asyncio.Event() for _ in range(4)]

    async def request(number: int, on_sent: Callable[[], None]) -> int:
        log.append(f"begin {number}")
        if number == 1:
            # The second is being sent while nobody has answered the first.
            answered[0].set()
        on_sent()
        if number == 0:
            await answered[0].wait()
        log.append(f"end {number}")
        return number

    requests = [lambda on_sent, one=number: request(one, on_sent) for number in range(4)]
    async with asyncio.timeout(DEADLINE_S), aclosing(one_ahead(requests)) as answers:
        assert [answer async for answer in answers] == [0, 1, 2, 3]
    assert log.index("begin 1") < log.index("end 0") and log.index("begin 2") > log.index("end 0")


async def test_a_request_that_fails_ends_the_other() -> None:
    is_cancelled = asyncio.Event()

    async def fail(on_sent: Callable[[], None]) -> int:
        on_sent()
        await asyncio.sleep(0)
        raise ValueError("cut")

    async def go_on(on_sent: Callable[[], None]) -> int:
        try:
            on_sent()
            await asyncio.Event().wait()
        finally:
            is_cancelled.set()
        return 0

    with pytest.raises(ValueError, match="cut"):
        async with asyncio.timeout(DEADLINE_S), aclosing(one_ahead([fail, go_on])) as answers:
            async for _ in answers:
                pass
    assert is_cancelled.is_set()


async def test_more_than_one_batch_with_folders_files_and_removals_arrives_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sbxtui.services.sync.transfer.BATCH_OPS", 3)
    with two_folders(tmp_path) as two:
        for number in range(12):
            folder = two.here / f"d{number % 4}" / "e"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"f{number}").write_text(f"{number}")
        await two.cycle.compare()
        assert two.both("d3/e/f11") == ("11", "11")
        # A file becomes a folder and a folder a file, others go.
        (two.here / "d0" / "e" / "f0").unlink()
        (two.here / "d0" / "e" / "f0").mkdir()
        (two.here / "d0" / "e" / "f0" / "new").write_text("n")
        for name in ("f1", "f5", "f9"):
            (two.here / "d1" / "e" / name).unlink()
        (two.here / "d1" / "e").rmdir()
        (two.here / "d1" / "e").write_text("a file")
        (two.here / "d2" / "e" / "f2").rename(two.here / "d3" / "moved")
        await two.cycle.compare()
        assert not two.cycle.status.failed
        assert two.both("d0/e/f0/new") == ("n", "n") and two.both("d1/e") == ("a file", "a file")
        assert two.both("d3/moved") == ("2", "2") and two.both("d2/e/f2") == (None, None)
