"""What programs give the Python API."""

from __future__ import annotations

import pytest

from sbxtui import arguments
from sbxtui.core.errors import UsageError


@pytest.mark.parametrize(
    ("given", "memory_mib"), [(None, 0), (512, 512), ("512", 512), ("512M", 512), ("2g", 2048), ("2GiB", 2048)]
)
def test_memory_is_a_number_or_what_the_command_line_takes(given: int | str | None, memory_mib: int) -> None:
    assert arguments.memory_mib(given) == memory_mib


@pytest.mark.parametrize("given", [0, -1, True, 0.5, "0", "", "0.5", "lots"])
def test_no_memory_is_not_the_default(given: int | str) -> None:
    with pytest.raises(UsageError):
        arguments.memory_mib(given)


@pytest.mark.parametrize("args", ["hello", b"hello"])
def test_a_text_is_not_taken_for_a_list_of_its_letters(args: str) -> None:
    with pytest.raises(UsageError) as caught:
        arguments.words("echo", args)
    assert caught.value.hint == f"exec('echo', [{args!r}])"


def test_words_of_a_command_are_texts() -> None:
    assert arguments.words("sleep", ["1"]) == ["sleep", "1"]
    with pytest.raises(UsageError, match="not 1"):
        arguments.words("sleep", [1])  # type: ignore[list-item]  # the mistake


@pytest.mark.parametrize("given", [[1], "A=b", {"a b": "x"}, {"A": 1}, {1: "x"}, {"A": "\0"}])
def test_variables_are_texts_under_names_that_variables_have(given: dict[str, str]) -> None:
    assert arguments.environment({"A": "b"}) == {"A": "b"}
    with pytest.raises(UsageError):
        arguments.environment(given)


def test_names_and_contents_are_what_they_are_called() -> None:
    assert (arguments.sandbox_name(None), arguments.content("ä"), arguments.content(b"x")) == (None, b"\xc3\xa4", b"x")
    with pytest.raises(UsageError, match="name=5"):
        arguments.sandbox_name(5)  # type: ignore[arg-type]  # the mistake
    with pytest.raises(UsageError, match="not a int"):
        arguments.content(5)  # type: ignore[arg-type]  # the mistake
