"""docs/cli.md names every verb and every flag there is, and no others."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator

from sbxtui.cli import parser as sbx_parser
from tests.packaging.support import ROOT

_PAGE = (ROOT / "docs" / "cli.md").read_text()


def test_every_verb_has_its_row() -> None:
    missing = sorted(set(_verbs()) - _documented_verbs())
    assert not missing, "\n".join(missing)


def test_no_row_is_about_a_verb_that_is_not_there() -> None:
    invented = sorted(_documented_verbs() - set(_verbs()))
    assert not invented, "\n".join(invented)


def test_every_flag_of_a_verb_stands_in_its_row() -> None:
    missing = [f"{verb} {flag}" for verb, flags in _verbs().items() for flag in flags if flag not in _flags_of(verb)]
    assert not missing, "\n".join(missing)


def test_no_row_has_a_flag_that_is_not_there() -> None:
    verbs = _verbs()
    invented = [f"{verb} {flag}" for verb in verbs for flag in _flags_of(verb) if flag not in verbs[verb]]
    assert not invented, "\n".join(invented)


def test_every_global_flag_stands_on_the_page() -> None:
    section = _PAGE.partition("## Global flags")[2].partition("\n## ")[0]
    missing = [flag for flag in _long_flags(_top()) if f"`{flag}" not in section]
    assert not missing, "\n".join(missing)


def _rows() -> Iterator[tuple[list[str], str]]:
    """Each table row: the verbs in its first cell, and the whole row."""
    for line in _PAGE.splitlines():
        if match := re.match(r"\| (`.*?`) \|", line):
            words = (re.match(r"[a-z][a-z-]*(?: [a-z][a-z-]*)?", cell) for cell in re.findall(r"`([^`]*)`", match[1]))
            yield [word[0] for word in words if word], line


def _documented_verbs() -> set[str]:
    return {verb for verbs, _ in _rows() for verb in verbs}


def _flags_of(verb: str) -> set[str]:
    return {flag for verbs, row in _rows() if verb in verbs for flag in re.findall(r"(?<![\w-])--[a-z][a-z-]*", row)}


def _top() -> argparse.ArgumentParser:
    return sbx_parser._build()


def _verbs() -> dict[str, list[str]]:
    """`verb` or `verb subverb` → its own long flags."""
    found: dict[str, list[str]] = {}
    # Of sbx alone; a verb's is of what it is about.
    global_flags = set(_long_flags(_top())) - {"--version"}
    for name, parser in _children(_top()):
        below = dict(_children(parser))
        for words, one in {f"{name} {sub}": child for sub, child in below.items()}.items() or [(name, parser)]:
            # A verb that has verbs of its own stands in one row with all of theirs.
            flags = [flag for parser in (one, *dict(_children(one)).values()) for flag in _long_flags(parser)]
            found[words] = [flag for flag in flags if flag not in global_flags]
    return found


def _children(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.items()


def _long_flags(parser: argparse.ArgumentParser) -> list[str]:
    return [flag for action in parser._actions for flag in action.option_strings if flag.startswith("--")]
