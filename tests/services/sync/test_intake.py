"""What comes in from a sandbox, and what is left of it when it does not come to its end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sbxguest.tree import Kind, State
from sbxtui.core.errors import GuestUnreachable
from sbxtui.services.sync.intake import Intake
from sbxtui.services.sync.model import Mode, Side
from sbxtui.services.sync.plan import plan
from sbxtui.services.sync.review import review, take_over
from sbxtui.services.sync.undo import undo
from tests.services.sync.pairs import two_folders


def waiting(state_dir: Path) -> list[Path]:
    """Contents in the stage that found no place."""
    return [path for path in state_dir.glob("stage/incoming/*") if path.is_file()]


async def test_what_a_pull_replaces_outlives_it_however_large_it_is(tmp_path: Path) -> None:
    with two_folders(tmp_path) as two:
        old = {f"f{number}": os.urandom(9 << 20) for number in range(3)}
        for name, content in old.items():
            (two.here / name).write_bytes(content)
        await two.cycle.compare()
        for name in old:
            (two.there / name).write_bytes(os.urandom(9 << 20))
        intake = Intake(two.pair.folder, two.state_dir / "stage", max_trash_bytes=1 << 20)
        try:
            outcomes = await take_over(two.pair, intake, await review(two.pair), lambda size_bytes: None)
            assert len(outcomes.done) == 3
            assert not (await undo(two.pair, intake, two.pair.ancestors.batches()[0])).failed
        finally:
            intake.close()
        assert {name: (two.here / name).read_bytes() for name in old} == old


async def test_a_pull_that_is_cut_leaves_no_contents_behind(tmp_path: Path) -> None:
    reads = 0

    def fault(point: str) -> None:
        nonlocal reads
        if point == "reading":
            reads += 1
            if reads % 10 == 0:
                raise GuestUnreachable("cut")

    with two_folders(tmp_path, mode=Mode.TWO_WAY, fault=fault) as two:
        (two.here / "x").write_text("one")
        await two.cycle.compare()
        for number in range(20):
            (two.there / f"n{number}").write_bytes(os.urandom(1000))
        with pytest.raises(GuestUnreachable):
            await two.cycle.compare()
        assert reads == 10
        assert waiting(two.state_dir) == []


async def test_a_digest_that_is_none_fails_that_file_only(tmp_path: Path) -> None:
    with two_folders(tmp_path) as two, two.intake() as intake:
        await two.cycle.compare()
        (two.there / "good").write_text("g")
        (two.there / "bad").write_text("b")
        await review(two.pair)
        two.pair.there.put(b"bad", State(Kind.FILE, b"short"))
        planned = plan({}, two.pair.local.listing(), two.pair.there.listing(), Mode.TWO_WAY)
        changes = [one for one in planned.changes if one.side is Side.LOCAL]
        outcomes = await two.pair.pull(changes, intake, lambda size_bytes: None)
        assert outcomes.done == [b"good"]
        assert set(outcomes.failed) | outcomes.again | outcomes.moved_on == {b"bad"}
        assert waiting(two.state_dir) == []
