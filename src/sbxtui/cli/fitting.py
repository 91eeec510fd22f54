"""Tables no wider than a terminal: columns are cut short, then left out, those first that are missed least."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from sbxtui.core.values import dataclass

GAP = "  "


@dataclass(frozen=True, slots=True)
class Cut:
    """A step towards a narrower table: a column is cut as far as needed but to no less than `least` cells; 0 leaves
    it out. `mark` ends what was cut.
    """

    column: str
    least: int
    mark: str = "…"


@dataclass(frozen=True, slots=True)
class Fitted:
    """A table that fits as well as its cuts allow, and the columns that had to go."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left_out: tuple[str, ...] = ()


def cells(text: str) -> int:
    """How many cells of a terminal a line takes."""
    if text.isascii():
        return len(text)
    return sum(_cells_of(letter) for letter in text)


def padded(text: str, width: int) -> str:
    """The text with blanks behind it up to `width` cells."""
    return text + " " * (width - cells(text))


def shortened(text: str, width: int, mark: str = "…") -> str:
    """The text in at most `width` cells; `mark` stands where the rest was."""
    if cells(text) <= width:
        return text
    kept = ""
    for letter in text:
        if cells(kept) + _cells_of(letter) + len(mark) > width:
            break
        kept += letter
    return (kept + mark)[:width]


def wrapped(text: str, head: str, width: int) -> list[str]:
    """The text behind `head` in lines of at most `width` cells (0: one line), further ones indented as far as the
    head is wide. A word that is longer than a line, as a path, stays whole: what is cut cannot be copied.
    """
    lines, indent = [head], " " * cells(head)
    for word in text.split(" ") if width else [text]:
        is_begun = lines[-1] != head
        if is_begun and cells(lines[-1]) + 1 + cells(word) > width:
            lines.append(indent + word)
        else:
            lines[-1] += " " * is_begun + word
    return lines


def fit(columns: Sequence[str], rows: Sequence[Sequence[str]], cuts: Sequence[Cut], width: int) -> Fitted:
    """Cut in the order of `cuts`, and no more than is needed to get the table into `width` cells.

    Args:
        columns: The heads.
        rows: One cell for each column.
        cuts: What to do while the table is too wide; for columns that are not there, nothing.
        width: Of the terminal, in cells.
    """
    # By what they are called, for a head that was cut is not to be known by itself any more.
    shown = dict(zip(columns, ([*line] for line in zip(columns, *rows, strict=True)), strict=True))
    left_out: list[str] = []
    for cut in cuts:
        excess = _width([*shown.values()]) - width
        if excess <= 0 or cut.column not in shown:
            continue
        if cut.least == 0:
            del shown[cut.column]
            left_out.append(cut.column)
            continue
        room = max(cut.least, max(map(cells, shown[cut.column])) - excess)
        shown[cut.column] = [shortened(cell, room, cut.mark) for cell in shown[cut.column]]
    heads, *lines = zip(*shown.values(), strict=True)
    return Fitted(heads, tuple(lines), tuple(left_out))


def _width(shown: Sequence[Sequence[str]]) -> int:
    return sum(max(map(cells, column)) for column in shown) + len(GAP) * (len(shown) - 1)


def _cells_of(letter: str) -> int:
    if unicodedata.combining(letter):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1
