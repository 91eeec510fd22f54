"""Text from outside is made harmless once, and quantities read well."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbxtui.core.text import harmless, harmless_line, parse_duration_s, short_age, short_size


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]52;c;ZXZpbA==\x07after", "after"),
        ("\x1b]0;title\x1b\\after", "after"),
        ("\x1b[2Jgone", "gone"),
        ("\x9b2Jgone", "gone"),
        ("\x9d0;title\x9cafter", "after"),
        ("\x1bPdcs\x1b\\after", "after"),
        ("a\u202eb\u2066c", "abc"),
        ("a\u200bb\ufeffc", "abc"),
        ("bell\x07 del\x7f nul\x00", "bell del nul"),
        ("line\r\nnext\ttab", "line\nnext\ttab"),
        ("over\rwrite", "overwrite"),
        ("\udcff", "\ufffd"),
        ("\x1b", ""),
        ("\x1b]unterminated", ""),
        ("日本語 ok é", "日本語 ok é"),
    ],
)
def test_escapes_controls_and_bidi_tricks_are_removed(hostile: str, shown: str) -> None:
    assert harmless(hostile) == shown


@given(st.text())
def test_harmless_text_stays_as_it_is_and_holds_no_control(text: str) -> None:
    once = harmless(text)
    assert harmless(once) == once
    assert not any((ord(char) < 32 and char not in "\t\n") or 0x7F <= ord(char) <= 0x9F for char in once)
    once.encode("utf-8")


def test_a_line_is_one_line_and_says_when_it_was_cut() -> None:
    assert harmless_line("a\nb\tc") == "a b c"
    assert harmless_line("x" * 500, limit=10) == "x" * 9 + "…"


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("1.5", 1.5), ("45s", 45), ("10m", 600), ("2h30m", 9000), ("1d", 86400)]
)
def test_durations_are_read_as_people_write_them(text: str, seconds: float) -> None:
    assert parse_duration_s(text) == seconds


@pytest.mark.parametrize("text", ["", "m", "1w", "-5", "1h2", "nan", "1e3"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no duration"):
        parse_duration_s(text)


@pytest.mark.parametrize("text", ["9" * 400, "40000d", "99999999999d"])
def test_what_goes_beyond_every_calendar_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="a hundred years"):
        parse_duration_s(text)


def test_ages_and_sizes_are_short() -> None:
    assert [short_age(timedelta(seconds=s)) for s in (-3, 5, 61, 7200, 200_000)] == ["0s", "5s", "1m", "2h", "2d"]
    assert [short_size(b) for b in (0, 1023, 1536, 20 << 20, 3 << 40)] == [
        "0 B",
        "1023 B",
        "1.5 KiB",
        "20 MiB",
        "3.0 TiB",
    ]
