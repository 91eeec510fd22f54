"""What a picture says, without what is another at each making: two pictures of the same dashboard say the same."""

from __future__ import annotations

import html
import re
from collections import defaultdict

_TEXT = re.compile(r'<text class="[^"]*-r\d+" x="([\d.]+)" y="([\d.]+)"[^>]*>(.*?)</text>', re.DOTALL)
# Ids, numbers, ages, places, and how much room they leave.
_VARYING = (
    (re.compile(r"\bmicrovm-[0-9a-f-]+"), "microvm-#"),
    (re.compile(r"/\S*sbx-bench-\w+"), "/PLACE"),
    (re.compile(r"[─━│┃█▁▂▃▄▅▆▇]+"), " "),
    # A dialog may cover the beginning of an age.
    (re.compile(r"(?:\b\d*[smhd]\s)?\bago\b"), "#"),
    (re.compile(r"\b\d+(?:[.,:]\d+)*(?:ms|s|m|h|d)?\b"), "#"),
    (re.compile(r"\b[0-9a-f]*\d[0-9a-f]*\b"), "#"),
    (re.compile(r"\s+"), " "),
)


def words_of(svg: str) -> list[str]:
    """The lines of a picture with words in them."""
    rows: dict[float, list[tuple[float, str]]] = defaultdict(list)
    for x, y, text in _TEXT.findall(svg):
        rows[float(y)].append((float(x), html.unescape(text)))
    lines = ["".join(text for _, text in sorted(row)) for _, row in sorted(rows.items())]
    return [words for line in lines if (words := _settled(line))]


def _settled(line: str) -> str:
    for varying, settled in _VARYING:
        line = varying.sub(settled, line)
    return line.strip()
