"""What a sandbox may be called."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbxtui.cli import parser
from sbxtui.core.errors import UsageError
from sbxtui.core.names import VERB_WORDS, check_labels, check_name, generate_name


@pytest.mark.parametrize("name", ["a", "0", "api-tests", "x" * 63, "a-", "a--b"])
def test_valid_names_are_taken(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize(
    "name", ["", "-a", "A", "a_b", "x" * 64, "a b", "a\n", "é", "a/b", "ls", "create", "tui", "microvm-1", "microvm-"]
)
def test_invalid_names_and_verbs_are_refused_with_a_remedy(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_name(name)
    assert caught.value.hint


def test_no_verb_of_the_command_line_can_be_a_name() -> None:
    assert set(parser.verbs()) <= VERB_WORDS


@given(st.sets(st.sampled_from([f"calm-{noun}" for noun in ("otter", "owl", "elm")])), st.randoms())
def test_generated_names_are_valid_and_free(taken: set[str], chance: random.Random) -> None:
    name = generate_name(taken, chance.choice)
    assert check_name(name) not in taken


def test_when_every_word_is_taken_a_number_follows() -> None:
    def first(words: list[str]) -> str:
        return words[0]

    plain = generate_name(set(), first)  # type: ignore[arg-type]  # a list is all it is called with
    assert generate_name({plain, f"{plain}-2"}, first) == f"{plain}-3"  # type: ignore[arg-type]  # as above


def test_a_label_that_cannot_be_shown_is_refused_and_can_be_taken_away() -> None:
    check_labels({"team": "blå", "empty": "", "a\nb": ""})
    for labels in ({"a\nb": "c"}, {"a": "\x1b[31m"}, {"a": "\u202eb"}):
        with pytest.raises(UsageError, match="is no label"):
            check_labels(labels)
