"""The last gate before the terminal: what any widget draws, also a line being typed or pasted, is text and no command.

Text is made harmless where it enters; this holds for what a widget draws as it stands, like the value of an input.
"""

from __future__ import annotations

from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

from sbxtui.core.text import without_controls


class OnlyText(LineFilter):
    """Drops every control; they have no width, so that nothing moves."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """The same segments, or harmless copies."""
        if all(segment.text.isprintable() for segment in segments):
            return segments
        return [Segment(without_controls(segment.text), segment.style) for segment in segments]
