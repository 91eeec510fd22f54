"""Lines of text of which only those that differ are drawn anew: an age among twenty facts grows each second."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content
from textual.geometry import Region
from textual.widget import Widget


class Facts(Widget):
    """Shows lines, each of which fits its width."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._lines: Sequence[Content] = ()
        self._text = Content("")

    def render(self) -> Content:
        """All lines."""
        return self._text

    def say(self, text: Content) -> None:
        """Show other lines."""
        before, self._lines, self._text = self._lines, text.split("\n", allow_blank=True), text
        # Only another height has the whole screen laid out anew; a wide character may take a line of its own.
        if len(before) != len(self._lines) or any(line.cell_length > self.size.width for line in self._lines):
            self.refresh(layout=True)
            return
        changed = [y for y, line in enumerate(self._lines) if not line.is_same(before[y])]
        if changed:
            self.refresh(*(Region(0, y, self.size.width, 1) for y in changed))
