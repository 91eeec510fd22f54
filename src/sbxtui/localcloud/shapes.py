"""Checking a value against a shape of the model, in the words the service uses for a violation.

botocore checks required members, minimums and unions on the client; maximums, patterns and enums the server.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import botocore.model

from sbxtui.localcloud import faults
from sbxtui.localcloud.account import REGION

_JSON_TYPES: dict[str, tuple[tuple[type, ...], str]] = {
    "string": ((str,), "a String"),
    "integer": ((int,), "an Integer"),
    "long": ((int,), "a Long"),
    "boolean": ((bool,), "a Boolean"),
    "timestamp": ((int, float, str), "a Timestamp"),
    "structure": ((dict,), "a structure"),
    "map": ((dict,), "a map"),
    "list": ((list,), "a list"),
}


def check_input(shape: botocore.model.Shape, value: Any) -> None:
    """Check a decoded input.

    Raises:
        Fault: `SerializationException` for the first wrong JSON type, else one `ValidationException` listing all.
    """
    found = list(violations(shape, value))
    if found:
        noun = "error" if len(found) == 1 else "errors"
        raise faults.validation(f"{len(found)} validation {noun} detected: " + "; ".join(found))


def violations(shape: botocore.model.Shape, value: Any, path: str = "") -> Iterator[str]:
    """Every constraint of `shape` that `value` breaks, as a sentence of the service.

    Raises:
        Fault: `SerializationException` where the JSON type itself is wrong.
    """
    _check_json_type(shape, value, path)
    match shape.type_name:
        case "structure":
            yield from _structure(shape, value, path)
        case "list":
            yield from _length(shape, len(value), path)
            for index, item in enumerate(value, start=1):
                yield from violations(shape.member, item, f"{path}.{index}.member")
        case "map":
            yield from _length(shape, len(value), path)
            for key, item in value.items():
                yield from violations(shape.key, key, f"{path}.key")
                yield from violations(shape.value, item, f"{path}.{key}.member")
        case "string":
            yield from _string(shape, value, path)
        case "integer" | "long":
            yield from _bounds(shape, value, path, "value")
        case _:
            return


def _check_json_type(shape: botocore.model.Shape, value: Any, path: str) -> None:
    kinds, words = _JSON_TYPES[shape.type_name]
    # bool is an int in Python, not in JSON.
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise faults.serialization(f"Value at '{path}' can not be converted to {words}")


def _structure(shape: botocore.model.StructureShape, value: dict[str, Any], path: str) -> Iterator[str]:
    for name in shape.required_members:
        if value.get(name) is None:
            yield _sentence(_join(path, name), "Member must not be null")
    known = {name: value[name] for name in shape.members if value.get(name) is not None}
    if shape.is_tagged_union and len(known) != 1:
        yield _sentence(path, f"Member must have exactly one of [{', '.join(shape.members)}] set")
    for name, item in known.items():
        yield from violations(shape.members[name], item, _join(path, name))


def _string(shape: botocore.model.StringShape, value: str, path: str) -> Iterator[str]:
    yield from _length(shape, len(value), path)
    pattern = shape.metadata.get("pattern")
    # Patterns of ARNs know AWS's regions only.
    if pattern and not _compiled(pattern).fullmatch(value.replace(f":{REGION}:", ":us-east-1:", 1)):
        yield _sentence(path, f"Member must satisfy regular expression pattern: {pattern}")
    if shape.enum and value not in shape.enum:
        yield _sentence(path, f"Member must satisfy enum value set: [{', '.join(shape.enum)}]")


def _length(shape: botocore.model.Shape, length: int, path: str) -> Iterator[str]:
    yield from _bounds(shape, length, path, "length")


def _bounds(shape: botocore.model.Shape, number: int, path: str, noun: str) -> Iterator[str]:
    least, most = shape.metadata.get("min"), shape.metadata.get("max")
    if most is not None and number > most:
        yield _sentence(path, f"Member must have {noun} less than or equal to {most}")
    if least is not None and number < least:
        yield _sentence(path, f"Member must have {noun} greater than or equal to {least}")


def _sentence(path: str, constraint: str) -> str:
    return f"Value at '{path}' failed to satisfy constraint: {constraint}"


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    # The model's patterns are Java's; Python's `re` lacks the Unicode classes that tags use.
    for java, python in ((r"\p{L}", r"\w"), (r"\p{N}", r"\d"), (r"\p{Z}", r"\s")):
        pattern = pattern.replace(java, python)
    return re.compile(pattern)
