"""Functions that know their last answer again: clients that poll, and servers that answer them, repeat themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class Remembered(Generic[P, R]):
    """A pure function that is not called again for the arguments it was called with last.

    Args:
        function: Its arguments are compared by `==`, the same objects at no cost.
    """

    def __init__(self, function: Callable[P, R]) -> None:
        self._function = function
        self._last: tuple[tuple[object, ...], dict[str, object], R] | None = None

    def __call__(self, *args: P.args, **named: P.kwargs) -> R:
        """The function's answer."""
        if self._last is not None and self._last[0] == args and self._last[1] == named:
            return self._last[2]
        answer = self._function(*args, **named)
        self._last = args, named, answer
        return answer
