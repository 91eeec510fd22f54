"""A pattern that would never come to an end on a line is given up, told, and leaves no alarm behind."""

from __future__ import annotations

import re
import signal

import pytest

from sbxtui.core.errors import UsageError
from sbxtui.core.linesearch import is_found

NEVER = re.compile("(a+)+$")
HOSTILE = "a" * 60 + "b"


def test_a_search_without_an_end_is_given_up_and_told() -> None:
    before = signal.getsignal(signal.SIGVTALRM)
    with pytest.raises(UsageError, match=r"`\(a\+\)\+\$` came to no end"):
        is_found(NEVER, HOSTILE)
    assert (signal.getitimer(signal.ITIMER_VIRTUAL)[0], signal.getsignal(signal.SIGVTALRM)) == (0, before)


@pytest.mark.parametrize(
    ("pattern", "text", "found"), [("(a+)+$", "xaa", True), ("b", "a", False), ("a{2}", "baa", True)]
)
def test_another_one_finds_what_it_finds(pattern: str, text: str, found: bool) -> None:
    assert is_found(re.compile(pattern), text) is found
