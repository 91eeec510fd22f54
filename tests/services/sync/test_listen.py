"""Listening for the sandbox's changes: long enough to be of use, and not so long that it keeps the sandbox awake."""

from __future__ import annotations

import asyncio
from pathlib import Path

from sbxtui.guest.treewire import Changes
from sbxtui.services.sync.listen import GuestWatch
from sbxtui.services.sync.model import Mode
from tests.services.sync.pairs import two_folders
from tests.support.direct_tree import DirectTree

DEADLINE_S = 60
LISTENS_S = 0.2


class Quiet(DirectTree):
    """A sandbox in which nothing changes; `waits_s` are the times for which it was asked to wait for something."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.waits_s: list[float] = []
        self.asked = asyncio.Event()
        self.answered = asyncio.Event()

    async def changes(self, cursor: str, *, wait_s: float = 25.0) -> Changes:
        """Nothing, in the end."""
        self.waits_s.append(wait_s)
        self.asked.set()
        await asyncio.sleep(wait_s + 0.01)
        self.answered.set()
        return Changes("1", (), False)


async def test_no_question_and_no_answer_is_on_its_way_after_the_time_to_listen(tmp_path: Path) -> None:
    with two_folders(tmp_path, mode=Mode.TWO_WAY) as two:
        await two.pair.look()
        quiet = two.pair.guest = Quiet(str(two.there))
        watch = GuestWatch(two.pair, lambda paths: None, LISTENS_S)
        running = asyncio.create_task(watch.run())
        async with asyncio.timeout(DEADLINE_S):
            await quiet.answered.wait()
            assert len(quiet.waits_s) == 1 and 0 < quiet.waits_s[0] <= LISTENS_S
            quiet.asked.clear()
            watch.wake()
            await quiet.asked.wait()
        assert len(quiet.waits_s) == 2, "nobody asked before something changed here"
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        quiet.close()
