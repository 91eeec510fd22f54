"""What a picture says, without what is another at each making: two pictures of the same dashboard say the same."""

from __future__ import annotations

import html
import re
from collections import defaultdict
from typing import NamedTuple

_TEXT = re.compile(r'<text class="[^"]*-r\d+" x="([\d.]+)" y="([\d.]+)"[^>]*>(.*?)</text>', re.DOTALL)
# Ids, numbers, ages, places, and how much room they leave.
_VARYING = (
    (re.compile(r"\bmicrovm-[0-9a-f-]+"), "microvm-#"),
    (re.compile(r"/\S*sbx-bench-\w+"), "/PLACE"),
    (re.compile(r"[─━│┃█▁▂▃▄▅▆▇]+"), " "),
    (re.compile(r"\b\d+(?:[.,:]\d+)*(?:ms|s|m|h|d)?\b"), "#"),
    (re.compile(r"\b[0-9a-f]*\d[0-9a-f]*\b"), "#"),
    (re.compile(r"\s+"), " "),
)


# A cell of a picture of Rich's, and the base line of the first one.
_CELL_WIDTH, _CELL_HEIGHT, _FIRST_Y = 12.2, 24.4, 20.0


class Box(NamedTuple):
    """Part of a screen, in cells; `right` and `bottom` are the first outside."""

    left: int
    top: int
    right: int
    bottom: int

    def holds(self, x: float, y: float) -> bool:
        """Whether text that begins there, in units of a picture, is in it."""
        column, row = round(x / _CELL_WIDTH), round((y - _FIRST_Y) / _CELL_HEIGHT)
        return self.left <= column < self.right and self.top <= row < self.bottom


def words_of(svg: str, box: Box | None = None) -> list[str]:
    """The lines of a picture, or of a part of it, with words in them."""
    rows: dict[float, list[tuple[float, str]]] = defaultdict(list)
    for x, y, text in _TEXT.findall(svg):
        if box is None or box.holds(float(x), float(y)):
            rows[float(y)].append((float(x), html.unescape(text)))
    lines = ["".join(text for _, text in sorted(row)) for _, row in sorted(rows.items())]
    return [words for line in lines if (words := _settled(line))]


def _settled(line: str) -> str:
    for varying, settled in _VARYING:
        line = varying.sub(settled, line)
    return line.strip()
