"""What a program gives the Python API, refused where it would mean something else than it says."""

from __future__ import annotations

from collections.abc import Sequence

from sbxtui.core.errors import UsageError
from sbxtui.core.text import parse_memory_mib


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
