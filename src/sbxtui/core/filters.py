"""One filter language for the dashboard and the command line: `state:run age<1h cost>.1 !image:py text`.

Terms are joined by AND. A term is `key:value` (contains), `key=value` (is), `key<value` or `key>value` (ages, and what
was spent so far in USD), or a bare word searched in name, id, image and labels. `!` in front negates a term. Quotes
keep blanks together.
"""

from __future__ import annotations

import math
import operator
import re
import shlex
from collections.abc import Callable, Sequence
from datetime import datetime

from sbxtui.core.errors import UsageError
from sbxtui.core.model import Sandbox
from sbxtui.core.text import harmless_line, parse_duration_s
from sbxtui.core.values import dataclass

_TERM = re.compile(r"(?P<not>!?)(?:(?P<key>[a-z]+)(?P<op>[:=<>]))?(?P<value>.*)", re.DOTALL)
# What a sandbox has cost so far in USD; None where nobody knows.
Spent = Callable[[Sandbox], float | None]


@dataclass(frozen=True, slots=True)
class _Look:
    """What a term may ask besides the sandbox itself."""

    now: datetime
    spent: Spent


_Test = Callable[[Sandbox, _Look], bool]


@dataclass(frozen=True, slots=True)
class Filter:
    """A parsed filter. Empty text matches everything."""

    text: str
    _tests: tuple[_Test, ...] = ()

    def matches(self, sandbox: Sandbox, now: datetime, spent: Spent = lambda sandbox: None) -> bool:
        """Whether every term holds for `sandbox` at `now`; one about a cost that `spent` does not know does not."""
        look = _Look(now, spent)
        return all(test(sandbox, look) for test in self._tests)


def parse_filter(text: str) -> Filter:
    """Parse the filter language.

    Raises:
        UsageError: A quote is open, a key is unknown, or an operator does not fit its key.
    """
    try:
        words = shlex.split(text)
    except ValueError as exc:
        raise UsageError(f"the filter `{harmless_line(text)}` cannot be read: {exc}", hint="close the quote") from exc
    return Filter(text, tuple(_parse_term(word) for word in words))


def sort_sandboxes(sandboxes: Sequence[Sandbox], keys: str) -> list[Sandbox]:
    """Sort by comma-separated keys (`state,name`, `-age`); a minus reverses that key.

    Raises:
        UsageError: A key is unknown.
    """
    rows = list(sandboxes)
    for key in reversed([key.strip() for key in keys.split(",") if key.strip()]):
        name = key.removeprefix("-")
        if name not in _SORTS:
            raise UsageError(f"cannot sort by `{harmless_line(name)}`", hint="keys: " + ", ".join(sorted(_SORTS)))
        rows.sort(key=_SORTS[name], reverse=key.startswith("-"))
    return rows


def _parse_term(word: str) -> _Test:
    match = _TERM.fullmatch(word)
    assert match is not None, "the pattern matches any text"
    key, op, value = match["key"], match["op"], match["value"]
    test = _bare(value) if key is None else _keyed(key, op, value)
    if match["not"]:
        return lambda sandbox, look: not test(sandbox, look)
    return test


def _bare(value: str) -> _Test:
    wanted = value.lower()
    return lambda sandbox, look: wanted in " ".join(_searched(sandbox)).lower()


def _searched(sandbox: Sandbox) -> list[str]:
    return [sandbox.name, sandbox.id, sandbox.image_name, *_labels(sandbox)]


def _labels(sandbox: Sandbox) -> list[str]:
    return [f"{key}={value}" for key, value in sandbox.labels.items()]


def _keyed(key: str, op: str, value: str) -> _Test:
    if key in _COMPARED:
        return _COMPARED[key](op, value)
    texts = _TEXTS.get(key)
    if texts is None:
        known = ", ".join(sorted([*_TEXTS, *_COMPARED]))
        raise UsageError(f"filters know no `{harmless_line(key)}`", hint=f"known: {known}")
    if op not in ":=":
        raise UsageError(f"`{key}` is text: `{op}` cannot compare it", hint=f"write `{key}:{harmless_line(value)}`")
    wanted = value.lower()
    if op == "=":
        return lambda sandbox, look: wanted in [text.lower() for text in texts(sandbox)]
    return lambda sandbox, look: any(wanted in text.lower() for text in texts(sandbox))


def _age(op: str, value: str) -> _Test:
    is_wanted = _compared("age", op, "age<1h")
    try:
        limit_s = parse_duration_s(value)
    except ValueError as exc:
        raise UsageError(str(exc)) from exc
    return lambda sandbox, look: is_wanted((look.now - sandbox.created_at).total_seconds(), limit_s)


def _cost(op: str, value: str) -> _Test:
    is_wanted = _compared("cost", op, "cost>.1")
    try:
        limit_usd = float(value.removeprefix("$"))
    except ValueError:
        limit_usd = math.nan
    if not math.isfinite(limit_usd):
        raise UsageError(f"`{harmless_line(value)}` is no amount", hint="write `cost>.1`: what it cost so far, in USD")

    def test(sandbox: Sandbox, look: _Look) -> bool:
        spent_usd = look.spent(sandbox)
        return spent_usd is not None and is_wanted(spent_usd, limit_usd)

    return test


def _compared(key: str, op: str, example: str) -> Callable[[float, float], bool]:
    if op not in "<>":
        raise UsageError(f"`{key}` is compared with < or >, not `{op}`", hint=f"write `{example}`")
    return operator.lt if op == "<" else operator.gt


_COMPARED: dict[str, Callable[[str, str], _Test]] = {"age": _age, "cost": _cost}
_TEXTS: dict[str, Callable[[Sandbox], list[str]]] = {
    "state": lambda sandbox: [sandbox.state.value],
    "name": lambda sandbox: [sandbox.name],
    "id": lambda sandbox: [sandbox.id],
    "image": lambda sandbox: [sandbox.image_name, sandbox.image_arn],
    "label": _labels,
    "context": lambda sandbox: [sandbox.context],
    "tracked": lambda sandbox: ["yes" if sandbox.is_tracked else "no"],
}
_SORTS: dict[str, Callable[[Sandbox], str]] = {
    "name": lambda sandbox: sandbox.name or "~" + sandbox.id,
    "state": operator.attrgetter("state"),
    "image": lambda sandbox: sandbox.image_name,
    "context": lambda sandbox: sandbox.context,
    # A younger sandbox has a smaller age, so the sort key runs against its birth.
    "age": lambda sandbox: f"{32_503_680_000 - sandbox.created_at.timestamp():020.6f}",
    "id": lambda sandbox: sandbox.id,
}
