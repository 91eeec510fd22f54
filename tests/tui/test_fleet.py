"""The model behind the list."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from sbxtui.core.errors import ControlUnavailable, QuotaExceeded
from sbxtui.core.model import Sandbox, SandboxState
from sbxtui.services.inventory import Inventory
from sbxtui.tui.fleet import Fleet, key_of
from sbxtui.tui.keymap import Keymap
from sbxtui.tui.tabs.registry import all_actions
from sbxtui.tui.widgets.needs import Need, needs_of
from tests.support.fake_services import LOCAL, sandbox

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def fleet_of(*sandboxes: Sandbox) -> Fleet:
    fleet = Fleet()
    fleet.take(seen(*sandboxes), is_cached=False, now=NOW)
    return fleet


def seen(*sandboxes: Sandbox, at: datetime = NOW) -> Inventory:
    return Inventory(LOCAL, tuple(replace(one, seen_at=at) for one in sandboxes), at)


def unreachable(*sandboxes: Sandbox) -> Inventory:
    rows = tuple(replace(one, state=SandboxState.UNKNOWN, seen_at=None) for one in sandboxes)
    return Inventory(LOCAL, rows, None, ControlUnavailable("no answer"))


def test_the_cursor_stays_on_its_sandbox_when_rows_come_and_go() -> None:
    fleet = fleet_of(sandbox("b"), sandbox("c"))
    fleet.move_to(1)
    fleet.take(seen(sandbox("a"), sandbox("b"), sandbox("c")), is_cached=False, now=NOW)
    assert fleet.selected is not None and fleet.selected.name == "c"


def test_the_cursor_takes_the_place_of_what_is_gone() -> None:
    fleet = fleet_of(sandbox("a"), sandbox("b"), sandbox("c"))
    fleet.move_to(1)
    fleet.take(seen(sandbox("a"), sandbox("c")), is_cached=False, now=NOW)
    assert fleet.selected is not None and fleet.selected.name == "c"


def test_marks_survive_a_filter_a_sort_and_a_refresh() -> None:
    fleet = fleet_of(sandbox("a"), sandbox("b"))
    fleet.toggle_mark()
    fleet.set_filter("b")
    fleet.sort_next()
    fleet.take(seen(sandbox("a"), sandbox("b")), is_cached=False, now=NOW)
    assert [one.name for one in fleet.targets()] == ["a"]


def test_a_mark_goes_when_the_control_plane_no_longer_has_its_sandbox() -> None:
    fleet = fleet_of(sandbox("a"), sandbox("b"))
    fleet.toggle_mark()
    fleet.take(seen(sandbox("b")), is_cached=False, now=NOW)
    assert fleet.marks == set()


def test_a_mark_stays_when_the_control_plane_does_not_answer() -> None:
    fleet = fleet_of(sandbox("a"))
    fleet.toggle_mark()
    fleet.take(unreachable(), is_cached=False, now=NOW)
    assert fleet.marks == {key_of(sandbox("a"))}


def test_one_lost_answer_shows_the_last_state_dimmed_and_a_longer_silence_shows_unknown() -> None:
    fleet = fleet_of(sandbox("a"))
    fleet.take(unreachable(sandbox("a")), is_cached=False, now=NOW + timedelta(seconds=3))
    assert [one.state for one in fleet.rows] == [SandboxState.RUNNING]
    assert fleet.is_dim(fleet.rows[0])
    fleet.take(unreachable(sandbox("a")), is_cached=False, now=NOW + timedelta(seconds=11))
    assert [one.state for one in fleet.rows] == [SandboxState.UNKNOWN]


def test_a_failed_look_keeps_the_age_of_the_last_good_one() -> None:
    fleet = fleet_of(sandbox("a"))
    fleet.take(unreachable(sandbox("a")), is_cached=False, now=NOW + timedelta(seconds=60))
    assert fleet.seen_at == NOW
    assert fleet.error is not None


def test_a_filter_that_cannot_be_read_yet_keeps_the_last_one() -> None:
    fleet = fleet_of(sandbox("a"), sandbox("b"))
    fleet.set_filter("name:a")
    fleet.set_filter('name:a "open')
    assert [one.name for one in fleet.rows] == ["a"]
    assert fleet.filter_error is not None
    fleet.set_filter("name:b")
    assert fleet.filter_error is None


def test_a_filter_that_matches_nothing_keeps_what_was_selected() -> None:
    fleet = fleet_of(sandbox("a"), sandbox("b"), sandbox("c"))
    fleet.move_to(1)
    fleet.set_filter("name:z")
    assert (fleet.selected, fleet.cursor) == (None, 0)
    fleet.set_filter("")
    assert fleet.selected is not None and fleet.selected.name == "b"


def test_marking_all_marks_what_is_shown_and_again_unmarks_it() -> None:
    fleet = fleet_of(sandbox("a1"), sandbox("a2"), sandbox("b"))
    fleet.set_filter("name:a")
    fleet.mark_shown()
    assert len(fleet.marks) == 2
    fleet.mark_shown()
    assert fleet.marks == set()


def test_an_empty_fleet_has_no_targets() -> None:
    fleet = fleet_of()
    fleet.move_to(7)
    fleet.toggle_mark()
    assert fleet.selected is None
    assert fleet.targets() == []


def test_what_needs_a_person_is_told_with_why_and_what_to_do() -> None:
    key_to = Keymap(all_actions(), {"remove": "x"}).key_to
    ended = sandbox("b", SandboxState.TERMINATED, state_reason="out of memory")
    killed = sandbox("c", state_reason="2 killed for want of memory")
    fleet = fleet_of(sandbox("a"), ended, killed, sandbox("d", SandboxState.SUSPENDED))
    fleet.note_failure(key_of(sandbox("a")), "stop", QuotaExceeded("no\x1b[2J more", hint="end one"))
    assert list(needs_of(fleet, NOW, key_to)) == [
        Need("a", "stop failed: no more", "end one"),
        Need("c", "2 killed for want of memory", "i shows its record"),
        Need("b", "ended: out of memory", "x takes it off the list"),
    ]
    fleet.forget_failure(key_of(sandbox("a")))
    assert [one.name for one in fleet.wrong] == ["c", "b"]
    fleet.take(unreachable(ended), is_cached=False, now=NOW + timedelta(minutes=1))
    assert list(needs_of(fleet, NOW, key_to)) == [Need("", "no answer", "o explains")]
