"""The word under the cursor of a shell line, and the line with that word completed. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sbxtui.core.shells import Completion
from sbxtui.core.text import harmless_line

_ENDS_WORD = frozenset(" \t\n;|&<>()`=")
_BEGINS_COMMAND = frozenset(";|&(`\n")
_UNSAFE = re.compile(r"([^A-Za-z0-9_@%+=:,./~\x80-\U0010ffff-])")
_SHOWN = 40


@dataclass(frozen=True, slots=True)
class Word:
    """A word being typed: `text` is what it means, from `start` on in the line; `quote` is open behind it."""

    start: int
    text: str
    quote: str
    is_command: bool


def word_at(line: str, cursor: int) -> Word:
    """The word that ends at the cursor, read as a shell reads it."""
    start, text, quote, is_escaped, is_command = 0, "", "", False, True
    for at, char in enumerate(line[:cursor]):
        if is_escaped:
            text, is_escaped = text + char, False
        elif char == "\\" and quote != "'":
            is_escaped = True
        elif quote:
            text, quote = (text, "") if char == quote else (text + char, quote)
        elif char in "'\"":
            quote = char
        elif char in _ENDS_WORD:
            is_command = char in _BEGINS_COMMAND or (is_command and not text and char in " \t")
            start, text = at + 1, ""
        else:
            text += char
    return Word(start, text, quote, is_command and "/" not in text)


def completed(line: str, cursor: int, word: Word, found: Completion) -> tuple[str, int, str]:
    """The line with the word grown as far as it is sure, where its cursor is then, and the choices left in words."""
    names = [one.name for one in found.candidates]
    if not names:
        return line, cursor, "nothing begins like that"
    is_sure = len(names) == 1 and found.is_whole
    grown = found.base + _common_start(names)
    end = ""
    if is_sure:
        end = "/" if found.candidates[0].is_folder else f"{word.quote} "
    text = (_quoted(grown, word.quote) if len(grown) >= len(word.text) else line[word.start : cursor]) + end
    new = line[: word.start] + text + line[cursor:]
    return new, word.start + len(text), "" if is_sure else _choices(found)


def _quoted(text: str, quote: str) -> str:
    """As typed behind an open quote, or with what a shell would take for something else escaped."""
    if quote == "'":
        return "'" + text
    if quote == '"':
        return '"' + re.sub(r'(["\\$`])', r"\\\1", text)
    return _UNSAFE.sub(r"\\\1", text)


def _common_start(names: list[str]) -> str:
    first, last = min(names), max(names)
    same = next((at for at, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), len(first))
    return first[:same]


def _choices(found: Completion) -> str:
    shown = [harmless_line(one.name, limit=60) + "/" * one.is_folder for one in found.candidates[:_SHOWN]]
    more = len(found.candidates) - len(shown)
    rest = f"  and {more} more" if more else "" if found.is_whole else "  and more"
    return "  ".join(shown) + rest
