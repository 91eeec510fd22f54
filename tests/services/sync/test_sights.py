"""What no hint tells of, and what is so large or so slow that a person has to be told how far it has come."""

from __future__ import annotations

import mmap
import os
import time
from pathlib import Path

import pytest

from sbxtui.guest.faults import answered
from sbxtui.services.sync.status import LinkState, Status
from tests.services.sync.pairs import two_folders
from tests.services.sync.test_link import Running, running, tree

MIB = 2**20


def states(live: Running) -> list[LinkState]:
    return [state for state, _ in live.seen]


async def test_changes_that_raise_no_event_are_found_by_looking_now_and_then_and_after_the_clock_jumped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Also a folder that is named by a link.
    (tmp_path / "real").mkdir()
    (tmp_path / "h").symlink_to("real")
    monkeypatch.setattr("sbxtui.services.sync.link._RESCAN_S", 0.3)
    monkeypatch.setattr("sbxtui.services.sync.link._RESCAN_SHARE", 0)
    (tmp_path / "real" / "here").mkdir()
    (tmp_path / "real" / "here" / "mapped").write_bytes(b"0" * 10)
    (tmp_path / "real" / "here" / "linked").write_bytes(b"0" * 10)
    os.link(tmp_path / "real" / "here" / "linked", tmp_path / "outside")
    async with running(tmp_path) as live:
        await live.until_equal()
        await live.until_state(LinkState.WATCHING)
        with (live.two.here / "mapped").open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
            mapped[:3] = b"new"
        (tmp_path / "outside").write_bytes(b"1" * 10)
        await live.until_equal()
        comparisons, clock, hours = states(live).count(LinkState.SCANNING), time.time, 0
        monkeypatch.setattr("time.time", lambda: clock() + hours * 3600)

        def is_noticed() -> bool:
            # A jump while it is at something is none between two waits, so it jumps on.
            nonlocal hours
            hours += 8
            return states(live).count(LinkState.SCANNING) > comparisons

        await live.until(is_noticed)


async def test_a_guest_that_answers_with_a_fault_of_its_own_is_asked_again(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        await live.until_state(LinkState.WATCHING)
        faults = 2

        def fail(point: str) -> None:
            nonlocal faults
            if faults:
                faults -= 1
                raise answered(500, b"{}")

        live.two.guest.fault = fail
        (live.two.here / "f").write_text("x")
        await live.until_equal()
        assert faults == 0 and LinkState.OFFLINE in states(live)


@pytest.mark.parametrize("is_read_before", [True, False])
async def test_a_large_file_that_goes_while_it_is_sent_is_sent_no_further_and_leaves_nothing(
    tmp_path: Path, *, is_read_before: bool
) -> None:
    with two_folders(tmp_path) as two:
        two.guest.names_contents = not is_read_before
        (two.here / "large").write_bytes(os.urandom(30 * MIB))
        (two.here / "small").write_text("x")
        sent = 0

        def fault(point: str) -> None:
            nonlocal sent
            sent += point == "sending"
            if point == "sending" and sent == 2:
                (two.here / "large").unlink()

        two.guest.fault = fault
        await two.cycle.compare()
        # The piece that was on its way, and the batch of the other file; and while it is read, what was read already.
        assert sent <= (4 if is_read_before else 16)
        assert os.listdir(two.there) == ["small"]
        assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.stat().st_size > MIB]
        await two.cycle.compare()
        assert not two.cycle.status.problems


@pytest.mark.long
async def test_many_generated_files_that_are_written_anew_again_and_again_are_equal_each_time(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        await live.until_state(LinkState.WATCHING)
        generated = live.two.here / "generated"
        for turn in range(2):
            for path in generated.glob("*") if generated.exists() else ():
                path.unlink()
            generated.mkdir(exist_ok=True)
            for number in range(1_179):
                (generated / f"f{number}").write_text(f"{turn} {number}")
            await live.until_equal()
        assert len(tree(live.two.there)) == 1_180


async def test_a_first_look_tells_how_far_it_has_come_and_where_the_most_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sbxtui.services.sync.gauge._TELL_EVERY_S", 0.0)
    monkeypatch.setattr("sbxtui.services.sync.gauge._MANY_ENTRIES", 300)
    with two_folders(tmp_path) as two:
        for number in range(400):
            (two.here / ("data" if number % 4 else "src") / f"d{number % 20}").mkdir(parents=True, exist_ok=True)
            (two.here / ("data" if number % 4 else "src") / f"d{number % 20}" / f"f{number}").touch()
        told: list[tuple[int, str]] = []

        def note(status: Status) -> None:
            if status.state is LinkState.SCANNING and status.seen:
                told.append((status.seen, status.words))

        two.cycle._on_status = note
        await two.cycle.compare()
        assert len(two.pair.local.states) >= told[-1][0] > 300
        assert told[0][1] == "" and "the most in data/" in told[-1][1] and ".sbxignore" in told[-1][1]
        assert two.cycle.status.seen == 0


async def test_of_a_first_look_that_takes_long_the_sizes_are_asked_before_all_of_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sbxtui.services.sync.cycle._LONG_LOOK_S", 0.0)
    with two_folders(tmp_path) as two:
        (two.here / "small").write_text("x")
        (two.there / "other").write_text("y")
        with (two.here / "data").open("wb") as file:
            file.truncate(3 * 1024**4)
        await two.cycle.compare()
        assert two.cycle.status.halts == ("large_seed",) and "data 3.0 TiB" in two.cycle.status.words
        assert os.listdir(two.there) == ["other"]
        (two.here / "data").unlink()
        await two.cycle.compare()
        assert not two.cycle.status.halts and two.both("small") == ("x", "x")
