"""Text under the mouse's selection."""

from __future__ import annotations

from rich.segment import Segment
from rich.style import Style


def lit(text: str, span: tuple[int, int], base: Style, look: Style) -> list[Segment]:
    """`text` with the characters of `span` (an end of -1: all the rest) in another look."""
    start, stop = span[0], len(text) if span[1] == -1 else span[1]
    parts = [(text[:start], base), (text[start:stop], base + look), (text[stop:], base)]
    return [Segment(part, style) for part, style in parts if part]
