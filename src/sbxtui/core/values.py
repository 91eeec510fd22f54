"""`dataclass` for what short commands and the dashboard's first frame import: its methods are made when they are used.

Python writes the methods of a dataclass as text and compiles that, about a millisecond for each class. Some sixty are
imported there, and a dozen used.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from threading import RLock
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

_MADE_LATER = ("__init__", "__repr__", "__eq__", "__hash__")
# Making them twice would fail: what stands for a default of its own for each is taken off the class the first time.
_MAKING = RLock()


def _dataclass(*, frozen: bool = False, slots: bool = False) -> Callable[[type], type]:
    """As the standard library's; only frozen ones with slots, and nothing inherited, wait for their methods."""
    return _waiting if frozen and slots else dataclasses.dataclass(frozen=frozen, slots=slots)


if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    dataclass = _dataclass


def _waiting(plain: type) -> type:
    """A class with the slots and the body of `plain`, which makes its methods when one is called."""
    if plain.__bases__ != (object,):
        return dataclasses.dataclass(frozen=True, slots=True)(plain)
    names = tuple(name for name, kind in plain.__annotations__.items() if not str(kind).startswith("ClassVar"))
    dropped = {*names, "__dict__", "__weakref__"}
    body = {name: value for name, value in vars(plain).items() if name not in dropped}
    make = partial(_make, plain)
    own = {name: _stub(name, make) for name in _MADE_LATER if body.get(name) is None}
    waiting = type(plain)(
        plain.__name__,
        (),
        {
            "__setattr__": _refuse,
            "__delattr__": _refuse,
            "__getstate__": _state,
            "__setstate__": _set_state,
            **body,
            **own,
            "__slots__": names,
            "__match_args__": names,
            "__dataclass_fields__": _Fields(make),
        },
    )
    waiting.__qualname__ = plain.__qualname__
    return waiting


class _Fields:
    """What the standard library tells a dataclass by, and asks it for its fields."""

    def __init__(self, make: Callable[[type], None]) -> None:
        self._make = make

    def __get__(self, _: object, owner: type) -> Any:
        self._make(owner)
        return vars(owner)["__dataclass_fields__"]


def _stub(name: str, make: Callable[[type], None]) -> Callable[..., Any]:
    def method(self: object, *args: Any, **named: Any) -> Any:
        make(type(self))
        return getattr(type(self), name)(self, *args, **named)

    return method


def _make(plain: type, waiting: type) -> None:
    """Have the standard library make the methods for `plain`, and give them to the class that waits for them."""
    with _MAKING:
        if not dataclasses.is_dataclass(plain):
            made = vars(dataclasses.dataclass(frozen=True)(plain))
            for name in (*_MADE_LATER, "__dataclass_params__", "__dataclass_fields__"):
                setattr(waiting, name, made[name])


def _refuse(self: object, name: str, *_: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _state(self: Any) -> list[object]:
    return [getattr(self, name) for name in self.__slots__]


def _set_state(self: Any, state: list[object]) -> None:
    for name, value in zip(self.__slots__, state, strict=True):
        object.__setattr__(self, name, value)
