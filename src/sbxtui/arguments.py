"""What a program gives the Python API, refused where it would mean something else than it says."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import TypedDict

from sbxtui.core.errors import UsageError
from sbxtui.core.text import parse_memory_mib


class Sizes(TypedDict):
    """How big a sandbox is; 0 is the default."""

    memory_mib: int
    cpus: int


class Ends(TypedDict):
    """What suspends or ends a sandbox by itself; 0 is nothing."""

    idle_s: int
    max_duration_s: int
    budget_usd: float


_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def memory_mib(memory: int | str | None) -> int:
    """`512`, `"512"` or `"2g"` in MiB; 0 where nothing was said.

    Raises:
        UsageError: It is no size, or none at all.
    """
    if memory is None:
        return 0
    if isinstance(memory, str):
        try:
            return parse_memory_mib(memory)
        except ValueError as exc:
            raise UsageError(str(exc)) from exc
    return at_least_one("memory", memory)


def at_least_one(name: str, number: int | None) -> int:
    """A whole number from 1 on; 0 where nothing was said.

    Raises:
        UsageError: It is another one, or no whole number.
    """
    if number is None:
        return 0
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise UsageError(f"{name}={number!r} is not possible", hint="a whole number from 1 on; leave it out otherwise")
    return number


def amount(name: str, usd: float | None) -> float:
    """An amount of USD; 0 where nothing was said.

    Raises:
        UsageError: It is no amount.
    """
    if usd is None:
        return 0.0
    if isinstance(usd, bool) or not isinstance(usd, int | float) or not 0 < usd < math.inf:
        raise UsageError(f"{name}={usd!r} is not possible", hint="an amount in USD, like 2.50")
    return float(usd)


def sizes(memory: int | str | None, cpus: int | None) -> Sizes:
    """How big a sandbox is.

    Raises:
        UsageError: As `memory_mib` and `at_least_one`.
    """
    return {"memory_mib": memory_mib(memory), "cpus": at_least_one("cpus", cpus)}


def ends(idle_s: int | None, max_duration_s: int | None, budget_usd: float | None) -> Ends:
    """What suspends or ends a sandbox by itself.

    Raises:
        UsageError: As `at_least_one` and `amount`.
    """
    return {
        "idle_s": at_least_one("idle_s", idle_s),
        "max_duration_s": at_least_one("max_duration_s", max_duration_s),
        "budget_usd": amount("budget_usd", budget_usd),
    }


def words(cmd: str, args: Sequence[str]) -> list[str]:
    """The words of a command.

    Raises:
        UsageError: `args` is a text, which would be taken for a list of its letters, or a word is no text.
    """
    if isinstance(args, str | bytes):
        raise UsageError(f"the arguments of a command are a list, not {args!r}", hint=f"exec({cmd!r}, [{args!r}])")
    found = [cmd, *args]
    if wrong := [word for word in found if not isinstance(word, str)]:
        raise UsageError(f"a command's words are texts, not {wrong[0]!r}", hint=f"write {str(wrong[0])!r}")
    return found


def sandbox_name(name: str | None) -> str | None:
    """A name, or None for one that is made up.

    Raises:
        UsageError: It is no text.
    """
    if name is not None and not isinstance(name, str):
        raise UsageError(f"name={name!r} is not possible", hint=f"a name is a text: {str(name)!r}")
    return name


def texts(what: str, given: Mapping[str, str] | None) -> dict[str, str]:
    """Texts by their names; none where nothing was said.

    Raises:
        UsageError: It is no mapping, or something in it is no text. Values are not told: they may be secrets.
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise UsageError(
            f"{what} is a mapping of texts, not a {type(given).__name__}", hint=f'{what}={{"NAME": "value"}}'
        )
    for key, value in given.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise UsageError(f"{what} maps texts to texts: {key!r} is mapped to a {type(value).__name__}")
    return dict(given)


def environment(given: Mapping[str, str] | None) -> dict[str, str]:
    """Variables by their names.

    Raises:
        UsageError: As `texts`; a name that no variable can have, or a NUL in a value.
    """
    found = texts("env", given)
    for name, value in found.items():
        if not _VARIABLE.fullmatch(name):
            raise UsageError(f"`{name}` cannot name a variable: letters, digits and _, no digit first")
        if "\0" in value:
            raise UsageError(f"the variable `{name}` holds a NUL character")
    return found


def content(given: str | bytes) -> bytes:
    """The bytes of a file; text becomes UTF-8.

    Raises:
        UsageError: It is neither text nor bytes.
    """
    if isinstance(given, str):
        return given.encode()
    if isinstance(given, bytes | bytearray | memoryview):
        return bytes(given)
    raise UsageError(f"a file's content is text or bytes, not a {type(given).__name__}")
