"""What two folders last agreed on, kept through crashes, damage and other versions."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from sbxguest.tree.entry import Kind, Stamp, State
from sbxtui.core.errors import StoreTooNew, TimedOut
from sbxtui.store.ancestors import Agreed, Ancestors, Dispute, Step

FILE = State(Kind.FILE, b"d" * 32, True, Stamp(5, 2**60, 7, 2**63, True))
LINK = State(Kind.LINK, b"\xff target")
DIR = State(Kind.DIR)


def test_what_is_agreed_on_comes_back_byte_for_byte_with_both_stamps(tmp_path: Path) -> None:
    file = tmp_path / "link.db"
    first = Ancestors.open(file)
    base = {b"a\xff/\n": Agreed(FILE, State(Kind.FILE, b"d" * 32, True, Stamp(5, 1, 2, 3))), b"l": Agreed(LINK, LINK)}
    first.record({**base, b"gone": Agreed(DIR, DIR)})
    first.record({b"gone": None})
    first.set_meta({"guest": "g1"})
    first.close()
    again = Ancestors.open(file)
    assert again.base() == base
    assert again.meta() == {"guest": "g1"}
    again.forget()
    assert again.base() == {} and again.meta() == {"guest": "g1"}
    again.close()


def test_a_damaged_file_is_kept_aside_and_nothing_is_agreed_on_then(tmp_path: Path) -> None:
    file = tmp_path / "link.db"
    file.write_bytes(b"SQLite format 3\x00" + b"x" * 5000)
    opened = Ancestors.open(file)
    assert opened.base() == {}
    (kept,) = tmp_path.glob("link.db.corrupt-*")
    assert kept.name in opened.notice
    assert kept.read_bytes().endswith(b"xxx")
    opened.close()


def test_a_file_of_a_newer_sbx_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "link.db"
    with sqlite3.connect(file) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    before = file.read_bytes()
    with pytest.raises(StoreTooNew):
        Ancestors.open(file)
    assert file.read_bytes() == before


async def test_one_process_at_a_time_compares_two_folders(tmp_path: Path) -> None:
    one, other = Ancestors.open(tmp_path / "link.db"), Ancestors.open(tmp_path / "link.db")
    async with one.cycle(timeout_s=1):
        with pytest.raises(TimedOut):
            async with other.cycle(timeout_s=0):
                pass
    async with other.cycle(timeout_s=0):
        seen = one.version()
        other.record({b"a": Agreed(DIR, DIR)})
    assert one.version() != seen
    one.close()
    other.close()


def test_batches_keep_the_steps_that_were_made(tmp_path: Path) -> None:
    state = Ancestors.open(tmp_path / "link.db")
    steps = [Step("local", b"a", None, FILE), Step("guest", b"b", FILE, None)]
    number = state.note_steps("pull", steps)
    assert state.note_steps("pull", steps[:1], number=number) == number
    (batch,) = state.batches()
    assert (batch.number, batch.word, batch.steps) == (number, "pull", (*steps, steps[0]))
    state.keep_steps(number, steps[1:])
    assert state.batches()[0].steps == (steps[1],)
    state.keep_steps(number, [])
    assert state.batches() == []
    dispute = Dispute(b"p", None, FILE, LINK)
    state.set_disputes([dispute, Dispute(b"q", FILE, None, DIR)])
    state.set_disputes([dispute])
    assert state.disputes() == [dispute]
    state.close()
