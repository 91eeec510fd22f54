"""Workers as the dashboard has them: in named groups, and an error of theirs ends nothing."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

from textual import work
from textual.worker import Worker

_P = ParamSpec("_P")
_R = TypeVar("_R")
_Method = Callable[_P, Coroutine[Any, Any, _R]]


def worker(*, group: str, exclusive: bool = False) -> Callable[[_Method[_P, _R]], Callable[_P, Worker[_R]]]:
    """Makes a method start a worker and return it; an exclusive one ends those of its group.

    By itself textual keeps beside each worker what `repr` says of all it was given: thousands of rows, or a secret.
    """

    def decorate(method: _Method[_P, _R]) -> Callable[_P, Worker[_R]]:
        made: Callable[_P, Worker[_R]] = work(
            group=group, exclusive=exclusive, exit_on_error=False, description=method.__name__
        )(method)
        return made

    return decorate
