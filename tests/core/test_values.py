"""Values behave as the standard library's frozen dataclasses, although their methods are made late."""

from __future__ import annotations

import copy
import dataclasses
import threading
from collections.abc import Callable
from dataclasses import dataclass as plainly
from dataclasses import field
from typing import Any, ClassVar

import pytest

from sbxtui.core.values import dataclass as late


def made_with(dataclass: Any) -> Any:
    """One class with all that values here are made of; each time another one, whose methods are not made yet."""

    @dataclass(frozen=True, slots=True)
    class Value:
        """What it is."""

        KIND: ClassVar[str] = "value"
        name: str
        size_bytes: int = 7
        token: str = field(default="", repr=False)
        facts: dict[str, int] = field(default_factory=dict)
        seen: int = field(default=0, compare=False)

        def __post_init__(self) -> None:
            if self.size_bytes < 0:
                raise ValueError("less than nothing")

        @property
        def is_big(self) -> bool:
            return self.size_bytes > 7

    return Value


USES: dict[str, Callable[[Any], object]] = {
    "repr": lambda value: repr(value("a", 8, token="t")).rpartition(".")[2],
    "equal": lambda value: (value("a"), value("a", seen=9)) == (value("a"), value("a")),
    "other": lambda value: value("a") != value("b") and value("a") != ("a",),
    "hash": lambda value: hash(value("a", facts=())) == hash(value("a", facts=(), seen=3)),
    "unhashable": lambda value: hash(value("a")),
    "replace": lambda value: dataclasses.replace(value("a", 8), name="b").size_bytes,
    "asdict": lambda value: dataclasses.asdict(value("a", 8)),
    "fields": lambda value: [one.name for one in dataclasses.fields(value)],
    "copied": lambda value: copy.deepcopy(value("a", 9)).is_big,
    "frozen": lambda value: setattr(value("a"), "name", "b"),
    "kept": lambda value: delattr(value("a"), "name"),
    "slots": lambda value: value("a").__dict__,
    "own facts": lambda value: value("a").facts is value("b").facts,
    "checked": lambda value: value("a", -1),
    "missing": lambda value: value(size_bytes=1),
    "unknown": lambda value: value("a", colour="red"),
    "class": lambda value: (value.KIND, value.__doc__, value.__name__, value.__match_args__),
}


@pytest.mark.parametrize("use", USES)
def test_a_value_is_what_the_standard_library_makes(use: str) -> None:
    def told(dataclass: Any) -> object:
        try:
            return USES[use](made_with(dataclass))
        except Exception as exc:  # noqa: BLE001 - which one it is, is what is compared
            return type(exc)

    assert told(late) == told(plainly)


def test_what_inherits_a_value_is_made_beside_it() -> None:
    value = made_with(late)
    smaller = type("Smaller", (value,), {})
    assert (smaller("a"), value("a")) == (smaller("a"), value("a"))
    assert smaller("a") != value("a")


def test_threads_that_use_a_class_first_at_once_have_the_same_methods() -> None:
    value, start, told = made_with(late), threading.Barrier(8), []

    def use() -> None:
        start.wait(10)
        told.append(value("a", facts={"b": 1}) == value("a", facts={"b": 1}) and repr(value("a")))

    threads = [threading.Thread(target=use) for _ in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(10)
    assert told == [repr(value("a"))] * 8
