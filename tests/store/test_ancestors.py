"""What two folders last agreed on, kept through crashes, damage and other versions."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sbxguest.tree.entry import Kind, Stamp, State, encode_state
from sbxtui.core.errors import StoreCorrupt, StoreError, StoreTooNew, TimedOut
from sbxtui.store import locks
from sbxtui.store.ancestors import Agreed, Ancestors, Dispute, Step
from sbxtui.store.codec import utc_now
from sbxtui.store.damage import keep_aside

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


@pytest.mark.parametrize("count", [1, 99, 100, 101, 250])
def test_however_many_paths_are_agreed_on_at_once_all_are_written_down(tmp_path: Path, count: int) -> None:
    base = {b"f%d" % number: Agreed(FILE, State(Kind.LINK, b"%d" % number)) for number in range(count)}
    with contextlib.closing(Ancestors.open(tmp_path / "link.db")) as ancestors:
        ancestors.record(base)
        assert ancestors.base() == base
        ancestors.record(dict.fromkeys(base))
        assert ancestors.base() == {}


def test_what_was_agreed_on_by_another_digest_is_agreed_on_no_more(tmp_path: Path) -> None:
    file = tmp_path / "link.db"
    first = Ancestors.open(file)
    first.record({b"f": Agreed(FILE, FILE)})
    first.set_meta({"guest": "g1"})
    first.note_steps("push", [Step("guest", b"f", None, FILE)])
    first.close()
    with sqlite3.connect(file) as connection:
        connection.execute("PRAGMA user_version = 1")
    connection.close()
    again = Ancestors.open(file)
    assert (again.base(), again.meta(), again.batches(), again.kept_texts()) == ({}, {}, [], set())
    again.record({b"f": Agreed(FILE, FILE)})
    again.close()
    with contextlib.closing(Ancestors.open(file)) as third:
        assert third.base() == {b"f": Agreed(FILE, FILE)}


def _write_garbage(file: Path) -> None:
    file.write_bytes(b"SQLite format 3\x00" + b"x" * 5000)


def _miscount_free_pages(file: Path) -> None:
    """Damage that only a look at every page finds, and of which SQLite makes no error."""
    Ancestors.open(file).close()
    content = bytearray(file.read_bytes())
    content[36:40] = (3).to_bytes(4, "big")
    file.write_bytes(content)


@pytest.mark.parametrize("damage", [_write_garbage, _miscount_free_pages])
def test_a_damaged_file_is_kept_aside_and_nothing_is_agreed_on_then(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    file = tmp_path / "link.db"
    damage(file)
    before = file.read_bytes()
    opened = Ancestors.open(file)
    assert opened.base() == {}
    (kept,) = tmp_path.glob("link.db.corrupt-*")
    assert kept.name in opened.notice
    assert kept.read_bytes() == before
    opened.close()


def _spoil_base(connection: sqlite3.Connection) -> None:
    connection.execute("INSERT INTO base VALUES (x'61', x'07', x'07')")


def _agree_on_nothing(connection: sqlite3.Connection) -> None:
    connection.execute("INSERT INTO base VALUES (x'61', ?, ?)", (encode_state(None), encode_state(None)))


def _spoil_conflict(connection: sqlite3.Connection) -> None:
    connection.execute("INSERT INTO conflict VALUES (x'61', x'', x'', x'')")


def _spoil_step(connection: sqlite3.Connection) -> None:
    connection.execute("INSERT INTO batch VALUES (1, 0, 'pull')")
    connection.execute("INSERT INTO step VALUES (1, 0, 'local', x'61', x'ff', x'ff', 1)")


@pytest.mark.parametrize("spoil", [_spoil_base, _agree_on_nothing, _spoil_conflict, _spoil_step])
def test_a_record_that_is_none_is_told_and_mended_at_the_next_opening(
    tmp_path: Path, spoil: Callable[[sqlite3.Connection], None]
) -> None:
    file = tmp_path / "link.db"
    opened = Ancestors.open(file)
    with sqlite3.connect(file) as connection:
        spoil(connection)
    connection.close()
    with pytest.raises(StoreCorrupt) as caught:
        _ = opened.base(), opened.disputes(), opened.batches()
    assert str(file) in caught.value.message and "again" in caught.value.hint
    opened.close()
    mended = Ancestors.open(file)
    assert mended.notice
    assert (mended.base(), mended.disputes(), mended.batches()) == ({}, [], [])
    mended.close()
    again = Ancestors.open(file)
    assert not again.notice
    again.close()


def test_a_record_that_is_none_condemns_no_new_file_that_took_its_place(tmp_path: Path) -> None:
    file = tmp_path / "link.db"
    old = Ancestors.open(file)
    old.close()
    with sqlite3.connect(file) as connection:
        _spoil_base(connection)
    connection.close()
    late, early = Ancestors.open(file), Ancestors.open(file)
    for one in (early, late):
        with pytest.raises(StoreCorrupt):
            one.base()
        if one is early:
            new = Ancestors.open(file)
            new.record({b"b": Agreed(DIR, DIR)})
    again = Ancestors.open(file)
    assert not again.notice and list(again.base()) == [b"b"]
    for one in (late, early, new, again):
        one.close()


def test_who_waited_while_another_kept_a_damaged_file_aside_looks_again_and_uses_the_new_one(tmp_path: Path) -> None:
    file = tmp_path / "link.db"
    _write_garbage(file)
    with ThreadPoolExecutor(1) as pool:
        with locks.only_opener(file):
            slower = pool.submit(Ancestors.open, file)
            with pytest.raises(TimeoutError):
                slower.result(timeout=0.3)
            keep_aside(file, utc_now())
        opened = slower.result(timeout=30)
    assert not opened.notice
    assert len(list(tmp_path.glob("*.corrupt-*"))) == 1
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


def test_a_thread_that_nobody_waits_for_any_more_outlives_the_closing(tmp_path: Path) -> None:
    file, base = tmp_path / "link.db", {b"%d" % number: Agreed(FILE, FILE) for number in range(2_000)}
    state = Ancestors.open(file)
    state.record(base)
    state.close()
    with ThreadPoolExecutor() as pool:
        for _ in range(20):
            state = Ancestors.open(file)
            reading = pool.submit(state.base)
            state.close()
            try:
                assert reading.result() == base
            except StoreError as exc:
                assert "closed" in str(exc)


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
