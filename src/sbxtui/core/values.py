"""`dataclass` for what short commands and the dashboard's first frame import: its methods are made when they are used.

Python writes the methods of a dataclass as text and compiles that, half a millisecond for each class. Some sixty are
imported there; half of them are used, and of those hardly more than how to make one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import MISSING
from threading import RLock
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

# Written together by the standard library, as soon as one of them is called.
_OTHERS = ("__repr__", "__eq__", "__hash__")
# Made twice, they would be wrong: what tells of a default is taken off the class the first time.
_MAKING = RLock()


def _dataclass(**options: bool) -> Callable[[type], type]:
    """As the standard library's; only what is frozen, has slots and inherits nothing waits for its methods."""
    own = dataclasses.dataclass(**options)
    is_value = options == {"frozen": True, "slots": True}
    return lambda plain: _Waiting(plain).made if is_value and plain.__bases__ == (object,) else own(plain)


if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    dataclass = _dataclass


class _Waiting:
    """Makes a class with the body of a plain one and slots, whose methods are made when they are called.

    Attributes:
        made: That class.
    """

    def __init__(self, plain: type) -> None:
        self._plain = plain
        self._names = tuple(
            name for name, kind in plain.__annotations__.items() if not str(kind).startswith("ClassVar")
        )
        self._told = {name: vars(plain).get(name, MISSING) for name in self._names}
        left_out = {*self._names, "__dict__", "__weakref__"}
        body = {name: value for name, value in vars(plain).items() if name not in left_out}
        waiting = {name: self._stub(name, self._make_others) for name in _OTHERS if body.get(name) is None}
        self.made: Any = type(plain)(plain.__name__, (), {**body, **self._methods(), **waiting})
        self.made.__qualname__ = plain.__qualname__

    def _methods(self) -> dict[str, Any]:
        return {
            "__init__": self._stub("__init__", self._make_init),
            "__setattr__": _refuse,
            "__delattr__": _refuse,
            "__getstate__": _state,
            "__setstate__": _set_state,
            "__slots__": self._names,
            "__match_args__": self._names,
            "__dataclass_fields__": _Fields(self._make_others),
        }

    def _stub(self, name: str, make: Callable[[], None]) -> Callable[..., Any]:
        """A method that has itself made, and then does what it was called for."""

        def method(one: object, *args: Any, **named: Any) -> Any:
            make()
            return getattr(self.made, name)(one, *args, **named)

        return method

    def _make_init(self) -> None:
        """Write what makes one: the standard library would write all the rest with it."""
        scope: dict[str, Any] = {"_set": object.__setattr__, "_fresh": object()}
        head, body = ["self"], []
        for name, told in self._told.items():
            field = told if isinstance(told, dataclasses.Field) else dataclasses.field(default=told)
            value = name
            if field.default_factory is not MISSING:
                head.append(f"{name}=_fresh")
                scope[f"_make_{name}"] = field.default_factory
                value = f"_make_{name}() if {name} is _fresh else {name}"
            elif field.default is not MISSING:
                head.append(f"{name}=_default_{name}")
                scope[f"_default_{name}"] = field.default
            else:
                head.append(name)
            body.append(f"_set(self, {name!r}, {value})")
        if hasattr(self._plain, "__post_init__"):
            body.append("self.__post_init__()")
        exec("\n ".join([f"def __init__({', '.join(head)}):", *body]), scope)
        self.made.__init__ = scope["__init__"]

    def _make_others(self) -> None:
        with _MAKING:
            if not dataclasses.is_dataclass(self._plain):
                written = vars(dataclasses.dataclass(frozen=True)(self._plain))
                for name in (*_OTHERS, "__dataclass_params__", "__dataclass_fields__"):
                    setattr(self.made, name, written[name])


class _Fields:
    """What the standard library tells a dataclass by, and asks it for its fields."""

    def __init__(self, make: Callable[[], None]) -> None:
        self._make = make

    def __get__(self, _: object, owner: type) -> Any:
        self._make()
        return owner.__dataclass_fields__  # type: ignore[attr-defined]  # made now


def _refuse(self: object, name: str, *_: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _state(self: Any) -> list[object]:
    return [getattr(self, name) for name in self.__match_args__]


def _set_state(self: Any, state: list[object]) -> None:
    for name, value in zip(self.__match_args__, state, strict=True):
        object.__setattr__(self, name, value)
