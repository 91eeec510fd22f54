"""What the dashboard says about states, ages and columns."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from rich.cells import cell_len

from sbxtui.core.errors import AccessDenied, ControlUnavailable, SbxError
from sbxtui.core.model import SandboxState
from sbxtui.tui.widgets.columns import GUTTER_WIDTH, fitted, layout
from sbxtui.tui.words import (
    LastSeen,
    counts_text,
    error_text,
    freshness_text,
    hung,
    isolation_word,
    shown_name,
    state_text,
    why_text,
)
from tests.support.fake_services import sandbox

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def test_every_state_has_a_glyph_and_a_word_of_its_own() -> None:
    texts = {state_text(state) for state in SandboxState}
    assert len({text.split(" ")[1] for text in texts}) == len(SandboxState)
    assert all(text.isascii() for text in texts)


@pytest.mark.parametrize(
    ("seen_before_s", "error", "is_cached", "expected"),
    [
        (0.4, None, False, "live"),
        (8, None, False, "updated 8s ago"),
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
    assert counts_text(sandboxes[1:3], 19) == "1 running  1 other"
    assert counts_text(sandboxes, 9) == "5 in all"
    assert counts_text(sandboxes, 3) == ""


def test_a_machine_without_a_name_is_never_shown_under_one() -> None:
    assert shown_name(sandbox("")) == "(mvm-stranger)"
    assert why_text(sandbox(""), None, NOW).startswith("no name here")


def test_an_error_page_has_the_cause_the_remedy_and_whether_to_retry() -> None:
    text = error_text(ControlUnavailable("no answer from `acme`", hint="check --region"))
    assert "no answer from `acme`" in text
    assert "What to do: check --region" in text
    assert "retrying is safe" in text


@pytest.mark.parametrize("width", range(30, 301))
def test_columns_fit_within_their_width_and_name_and_state_never_go(width: int) -> None:
    slots = layout(width, name_width=20)
    assert [slot.column.name for slot in slots][:2] == ["NAME", "STATE"]
    assert slots[0].start == GUTTER_WIDTH
    # The frame is not touched.
    assert slots[-1].start + slots[-1].width < width


@pytest.mark.parametrize(
    ("wrong_width", "order"),
    [
        (0, ["WHY", "CPU 5MIN", "PER HOUR", "IMAGE", "SO FAR", "NET", "ISOLATION", "AGE"]),
        (40, ["CPU 5MIN", "PER HOUR", "IMAGE", "SO FAR", "NET", "WHY", "ISOLATION", "AGE"]),
    ],
)
def test_columns_go_in_an_order_and_the_reason_later_while_something_is_wrong(
    wrong_width: int, order: list[str]
) -> None:
    shown = [
        frozenset(slot.column.name for slot in layout(width, wrong_width=wrong_width)) for width in range(150, 29, -1)
    ]
    gone = [name for wide, narrow in pairwise(shown) for name in wide - narrow]
    assert gone == order


def test_a_reason_is_readable_on_80_columns() -> None:
    reason = "killed for using too much"
    [why] = [slot for slot in layout(78, name_width=12, wrong_width=len(reason)) if slot.column.name == "WHY"]
    assert why.width >= len(reason)


@pytest.mark.parametrize(
    ("words", "word"),
    [
        ("gVisor (user-space kernel)", "gVisor"),
        ("namespaces (bubblewrap) — shared host kernel", "namespaces"),
        ("process — NOT isolated", "process!"),
        ("", "?"),
    ],
)
def test_a_sandbox_tells_its_isolation_in_one_word(words: str, word: str) -> None:
    assert isolation_word(sandbox("a", facts={"isolation": words})) == word


def test_what_a_long_line_goes_on_with_stands_below_its_last_column() -> None:
    line = "  ctrl+x          cut             Takes what is marked away from here."
    lines = hung(f"{line}\nshort", 68).split("\n")
    assert lines[0].startswith("  ctrl+x") and lines[1] == " " * 34 + lines[1].strip()
    assert " ".join(one.strip() for one in lines[:-1]).split() == line.split()
    assert all(len(one) <= 68 for one in lines) and lines[-1] == "short"


@pytest.mark.parametrize("text", ["", "short", "exactly-10", "much longer than that", "日本語の名前です", "a日b本c語d"])
@pytest.mark.parametrize("width", [1, 2, 10])
def test_a_cell_has_exactly_its_width_in_cells(text: str, width: int) -> None:
    assert cell_len(fitted(text, width)) == width
