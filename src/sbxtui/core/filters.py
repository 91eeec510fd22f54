"""One filter language for the dashboard and the command line: `state:run age<1h !image:py text`.

Terms are joined by AND. A term is `key:value` (contains), `key=value` (is), `key<value` or `key>value` (ages), or a
bare word searched in name, id, image and labels. `!` in front negates a term. Quotes keep blanks together.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from sbxtui.core.errors import UsageError
from sbxtui.core.model import Sandbox
from sbxtui.core.text import harmless_line, parse_duration_s

_TERM = re.compile(r"(?P<not>!?)(?:(?P<key>[a-z]+)(?P<op>[:=<>]))?(?P<value>.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Filter:
    """A parsed filter. Empty text matches everything."""

    text: str
    _tests: tuple[Callable[[Sandbox, datetime], bool], ...] = ()

    def matches(self, sandbox: Sandbox, now: datetime) -> bool:
        """Whether every term holds for `sandbox` at `now`."""
        return all(test(sandbox, now) for test in self._tests)


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


def _parse_term(word: str) -> Callable[[Sandbox, datetime], bool]:
    match = _TERM.fullmatch(word)
    assert match is not None, "the pattern matches any text"
    key, op, value = match["key"], match["op"], match["value"]
    test = _bare(value) if key is None else _keyed(key, op, value)
    if match["not"]:
        return lambda sandbox, now: not test(sandbox, now)
    return test


def _bare(value: str) -> Callable[[Sandbox, datetime], bool]:
    wanted = value.lower()
    return lambda sandbox, now: wanted in " ".join(_searched(sandbox)).lower()


def _searched(sandbox: Sandbox) -> list[str]:
    return [sandbox.name, sandbox.id, sandbox.image_name, *_labels(sandbox)]


def _labels(sandbox: Sandbox) -> list[str]:
    return [f"{key}={value}" for key, value in sandbox.labels.items()]


def _keyed(key: str, op: str, value: str) -> Callable[[Sandbox, datetime], bool]:
    if key == "age":
        return _age(op, value)
    texts = _TEXTS.get(key)
    if texts is None:
        known = ", ".join(sorted([*_TEXTS, "age"]))
        raise UsageError(f"filters know no `{harmless_line(key)}`", hint=f"known: {known}")
    if op not in ":=":
        raise UsageError(f"`{key}` is text: `{op}` cannot compare it", hint=f"write `{key}:{harmless_line(value)}`")
    wanted = value.lower()
    if op == "=":
        return lambda sandbox, now: wanted in [text.lower() for text in texts(sandbox)]
    return lambda sandbox, now: any(wanted in text.lower() for text in texts(sandbox))


def _age(op: str, value: str) -> Callable[[Sandbox, datetime], bool]:
    if op not in "<>":
        raise UsageError(f"`age` is compared with < or >, not `{op}`", hint="write `age<1h`")
    try:
        limit_s = parse_duration_s(value)
    except ValueError as exc:
        raise UsageError(str(exc)) from exc

    def test(sandbox: Sandbox, now: datetime) -> bool:
        age_s = (now - sandbox.created_at).total_seconds()
        return age_s < limit_s if op == "<" else age_s > limit_s

    return test


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
    "state": lambda sandbox: sandbox.state.value,
    "image": lambda sandbox: sandbox.image_name,
    "context": lambda sandbox: sandbox.context,
    # A younger sandbox has a smaller age, so the sort key runs against its birth.
    "age": lambda sandbox: f"{32_503_680_000 - sandbox.created_at.timestamp():020.6f}",
    "id": lambda sandbox: sandbox.id,
}
