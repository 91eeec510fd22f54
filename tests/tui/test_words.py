"""What the dashboard says about states, ages and columns."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from rich.cells import cell_len

from sbxtui.core.errors import AccessDenied, ControlUnavailable, SbxError
from sbxtui.core.model import SandboxState
from sbxtui.tui.widgets.columns import GUTTER_WIDTH, fitted, layout
from sbxtui.tui.words import LastSeen, counts_text, error_text, freshness_text, shown_name, state_text, why_text
from tests.support.fake_services import sandbox

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def test_every_state_has_a_glyph_and_a_word_of_its_own() -> None:
    texts = {state_text(state) for state in SandboxState}
    assert len({text.split(" ")[1] for text in texts}) == len(SandboxState)
    assert all(text.isascii() for text in texts)


@pytest.mark.parametrize(
    ("seen_before_s", "error", "is_cached", "expected"),
    [
        (0.4, None, False, "updated 1s ago"),
        (5, None, False, "updated 5s ago"),
        (12, None, False, "stale 12s"),
        (180, None, True, "as of 3m ago · asking"),
        (20, ControlUnavailable("x"), False, "unreachable · as of 20s ago"),
        (None, AccessDenied("x"), True, "no access"),
        (None, None, True, "not asked yet"),
    ],
)
def test_freshness_says_how_old_and_why(
    seen_before_s: float | None, error: SbxError | None, is_cached: bool, expected: str
) -> None:
    seen_at = None if seen_before_s is None else NOW - timedelta(seconds=seen_before_s)
    assert freshness_text(seen_at, NOW, error, is_cached=is_cached) == expected


def test_an_unknown_state_says_what_it_was_and_when() -> None:
    seen = LastSeen(SandboxState.RUNNING, NOW - timedelta(seconds=40))
    assert why_text(sandbox("a", SandboxState.UNKNOWN), seen, NOW) == "was running 40s ago"
    assert why_text(sandbox("a", SandboxState.UNKNOWN), None, NOW) == "never seen by this dashboard"


def test_counts_that_do_not_fit_are_counted_together() -> None:
    state = SandboxState
    kinds = (state.RUNNING, state.RUNNING, state.SUSPENDED, state.TERMINATED, state.UNKNOWN)
    sandboxes = [sandbox(f"s{at}", kind) for at, kind in enumerate(kinds)]
    assert counts_text(sandboxes) == "2 running  1 unknown  1 suspended  1 ended"
    assert counts_text(sandboxes, 40) == "2 running  1 unknown  2 others"
    assert counts_text(sandboxes, 20) == "2 running  3 others"
    assert counts_text(sandboxes, 9) == "5 in all"
    assert counts_text(sandboxes, 3) == ""


def test_a_machine_without_a_name_is_never_shown_under_one() -> None:
    assert shown_name(sandbox("")) == "(mvm-stranger)"
    assert why_text(sandbox(""), None, NOW).startswith("untracked")


def test_an_error_page_has_the_cause_the_remedy_and_whether_to_retry() -> None:
    text = error_text(ControlUnavailable("no answer from `acme`", hint="check --region"))
    assert "no answer from `acme`" in text
    assert "What to do: check --region" in text
    assert "retrying is safe" in text


@pytest.mark.parametrize("width", range(30, 301))
def test_columns_fit_their_width_and_name_and_state_never_go(width: int) -> None:
    slots = layout(width, name_width=20)
    assert [slot.column.name for slot in slots][:2] == ["NAME", "STATE"]
    assert slots[0].start == GUTTER_WIDTH
    assert slots[-1].start + slots[-1].width <= width


def test_columns_go_in_the_order_why_image_net_age() -> None:
    shown = [frozenset(slot.column.name for slot in layout(width)) for width in range(120, 29, -1)]
    gone = [name for wide, narrow in pairwise(shown) for name in wide - narrow]
    assert gone == ["WHY", "IMAGE", "NET", "AGE"]


@pytest.mark.parametrize("text", ["", "short", "exactly-10", "much longer than that", "日本語の名前です", "a日b本c語d"])
@pytest.mark.parametrize("width", [1, 2, 10])
def test_a_cell_has_exactly_its_width_in_cells(text: str, width: int) -> None:
    assert cell_len(fitted(text, width)) == width
