"""Arguments of tools: declared once, shown to clients as a flat JSON schema, checked when a call brings them.

Schemas keep to what every client reads: plain types and enums, no null unions, no references. An argument may also be
spelled in camelCase, and by its aliases; nothing that is sent is ignored. Rare ones are not listed one by one: they may
be sent in an object `options`, which names them, or beside it like all others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from sbxtui.core.errors import UsageError
from sbxtui.core.text import harmless_line

_SHOWN = 60
# What every reader of JSON, and our store, holds without loss.
_LARGEST = 2**53
_OPTIONS = "options"


class Kind(StrEnum):
    """What an argument is, in JSON schema's words; WORDS are texts, VARIABLES texts by name."""

    TEXT = "string"
    WHOLE = "integer"
    FLAG = "boolean"
    WORDS = "array"
    VARIABLES = "object"


@dataclass(frozen=True, slots=True)
class Param:
    """One argument. `aliases` are other spellings; `least` and `most` bound a number; rare ones are listed by name."""

    name: str
    kind: Kind = Kind.TEXT
    help: str = ""
    is_required: bool = False
    choices: tuple[str, ...] = ()
    least: int | None = None
    most: int | None = None
    aliases: tuple[str, ...] = ()
    is_rare: bool = False

    @property
    def spellings(self) -> tuple[str, ...]:
        """Every name it may be sent under."""
        return tuple(dict.fromkeys((self.name, camel(self.name), *self.aliases)))

    def schema(self) -> dict[str, Any]:
        """As clients see it."""
        schema: dict[str, Any] = {"type": self.kind.value}
        if self.help:
            schema["description"] = self.help
        if self.choices:
            schema["enum"] = list(self.choices)
        # That a number is not negative goes without saying.
        if self.least is not None and self.least > 1:
            schema["minimum"] = self.least
        if self.most is not None:
            schema["maximum"] = self.most
        if self.kind is Kind.WORDS:
            schema["items"] = {"type": "string"}
        if self.kind is Kind.VARIABLES:
            schema["additionalProperties"] = {"type": "string"}
        return schema

    def checked(self, value: object) -> object:
        """The value as handlers get it; numbers and flags that were sent as text are understood.

        Raises:
            UsageError: It is something else.
        """
        found = _CONVERTERS[self.kind](value)
        if found is None:
            raise UsageError(f"`{self.name}` must be {_WORDS[self.kind]}, not {_shown(value)}")
        if self.choices and found not in self.choices:
            raise UsageError(f"`{self.name}` cannot be {_shown(value)}", hint=f"one of {', '.join(self.choices)}")
        if isinstance(found, int):
            self._check_bounds(found)
        return found

    def _check_bounds(self, number: int) -> None:
        if abs(number) > _LARGEST:
            raise UsageError(f"`{self.name}` has too many digits")
        if (self.least is not None and number < self.least) or (self.most is not None and number > self.most):
            bounds = [f"at least {self.least}"] if self.least is not None else []
            bounds += [f"at most {self.most}"] if self.most is not None else []
            raise UsageError(f"`{self.name}` cannot be {number}", hint=" and ".join(bounds))


class Args:
    """The checked arguments of one call; what was left out has the default of who asks for it."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = dict(values)

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def items(self) -> Iterable[tuple[str, object]]:
        """What was sent, by name."""
        return self._values.items()

    def text(self, name: str, default: str = "") -> str:
        """A text."""
        return str(self._values.get(name, default))

    def whole(self, name: str, default: int = 0) -> int:
        """A whole number."""
        return int(self._values.get(name, default))

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Yes or no."""
        return bool(self._values.get(name, default))

    def words(self, name: str) -> tuple[str, ...]:
        """Several texts."""
        return tuple(self._values.get(name, ()))

    def variables(self, name: str) -> dict[str, str]:
        """Texts by name."""
        return dict(self._values.get(name, {}))


def rare(*params: Param) -> tuple[Param, ...]:
    """The same arguments, as rare ones."""
    return tuple(replace(param, is_rare=True) for param in params)


def input_schema(params: Sequence[Param]) -> dict[str, Any]:
    """The schema of a tool's arguments, as it is listed: small."""
    schema = full_schema([param for param in params if not param.is_rare])
    if others := [param.name for param in params if param.is_rare]:
        schema["properties"][_OPTIONS] = {"type": "object", "description": f"Rarer ones: {', '.join(others)}"}
    return schema


def full_schema(params: Sequence[Param]) -> dict[str, Any]:
    """The schema of a tool's arguments, each with what it means."""
    schema: dict[str, Any] = {"type": "object", "properties": {param.name: param.schema() for param in params}}
    if required := [param.name for param in params if param.is_required]:
        schema["required"] = required
    return schema


def check(params: Sequence[Param], sent: Mapping[str, object]) -> Args:
    """The arguments of a call.

    Raises:
        UsageError: One is missing, unknown, sent twice, or not what it must be.
    """
    by_spelling = {spelling: param for param in params for spelling in param.spellings}
    values: dict[str, object] = {}
    for spelling, value in _flat(params, sent):
        param = by_spelling.get(spelling)
        if param is None:
            raise UsageError(f"there is no argument {_shown(spelling)}", hint=f"known: {_names(params)}")
        if value is None:
            continue
        if param.name in values:
            raise UsageError(f"`{param.name}` was sent twice", hint="under one name only")
        values[param.name] = param.checked(value)
    if missing := [param.name for param in params if param.is_required and param.name not in values]:
        raise UsageError(f"`{missing[0]}` is missing", hint=f"known: {_names(params)}")
    return Args(values)


def _flat(params: Sequence[Param], sent: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """Every argument under the name it was sent by, in `options` or beside it."""
    has_options = any(param.is_rare for param in params)
    for name, value in sent.items():
        if name != _OPTIONS or not has_options:
            yield name, value
        elif isinstance(value, Mapping):
            yield from value.items()
        elif value is not None:
            raise UsageError(f"`{_OPTIONS}` must be an object, not {_shown(value)}", hint=f"known: {_names(params)}")


def camel(name: str) -> str:
    """`memory_mib` as `memoryMib`."""
    first, *others = name.split("_")
    return first + "".join(other.capitalize() for other in others)


def _names(params: Iterable[Param]) -> str:
    return ", ".join(param.name for param in params) or "none"


def _shown(value: object) -> str:
    return f"`{harmless_line(str(value), limit=_SHOWN)}`"


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and "\0" not in value else None


def _whole(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, str) and value.strip().removeprefix("-").isdecimal() and len(value) < _SHOWN:
        return int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) else None


def _flag(value: object) -> bool | None:
    if isinstance(value, str):
        return {"true": True, "false": False}.get(value.strip().lower())
    return value if isinstance(value, bool) else None


def _texts(value: object) -> tuple[str, ...] | None:
    if not isinstance(value, list) or any(_text(one) is None for one in value):
        return None
    return tuple(value)


def _variables(value: object) -> dict[str, str] | None:
    if not isinstance(value, dict):
        return None
    numbers = (int, float)
    found = {
        str(name): str(one) if isinstance(one, numbers) and not isinstance(one, bool) else _text(one)
        for name, one in value.items()
    }
    return None if any(one is None for one in found.values()) else {name: str(one) for name, one in found.items()}


_CONVERTERS = {
    Kind.TEXT: _text,
    Kind.WHOLE: _whole,
    Kind.FLAG: _flag,
    Kind.WORDS: _texts,
    Kind.VARIABLES: _variables,
}
_WORDS = {
    Kind.TEXT: "a text without NUL",
    Kind.WHOLE: "a whole number",
    Kind.FLAG: "true or false",
    Kind.WORDS: "a list of texts",
    Kind.VARIABLES: "an object whose values are texts",
}
