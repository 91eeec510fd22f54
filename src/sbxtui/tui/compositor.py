"""Drawing only what changed and can be seen.

Where anything of a pane changes, Textual asks every widget near it for all its lines, those under others too, and then
draws the lines that changed. An age that grows by a second would have the whole screen put together each time, and so
would a log in one half of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from textual._compositor import Compositor
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

# By where a piece begins in its line; None where nobody has drawn yet.
_Line = dict[int, Strip | None]


class LineCompositor(Compositor):
    """Textual's, which asks widgets for lines that are drawn and not hidden by what is before them, and no others."""

    def _render_chops(self, crop: Region, is_rendered_line: Callable[[int], bool]) -> Sequence[Mapping[int, Strip]]:
        lines: list[_Line] = [dict.fromkeys(cuts[:-1]) for cuts in self.cuts]
        drawn = [y for y in crop.line_range if is_rendered_line(y)]
        # The foremost first: who draws a piece first has it.
        for widget, (region, clip) in self.visible_widgets.items():
            shown = region.intersection(clip)
            if drawn and shown.overlaps(crop):
                open_rows = [y for y in drawn if y in shown.line_range and self._is_open(lines[y], shown)]
                for run in _runs(open_rows):
                    self._draw(widget, region, Region(shown.x, run.start, shown.width, len(run)), lines)
        return lines  # type: ignore[return-value]  # as textual's own: pieces that are not drawn stay None

    def _is_open(self, line: _Line, shown: Region) -> bool:
        """Whether a piece of a line within a widget was drawn by nobody yet."""
        return any(strip is None and shown.x <= x < shown.right for x, strip in line.items())

    def _draw(self, widget: Widget, region: Region, part: Region, lines: list[_Line]) -> None:
        strips = widget.render_lines(part.translate((-region.x, -region.y)))
        for y, strip in zip(part.line_range, strips, strict=False):
            line = lines[y]
            cuts = [cut for cut in self.cuts[y] if part.x <= cut <= part.right]
            pieces = strip.divide([cut - part.x for cut in cuts[1:]])
            for cut, piece in zip(cuts, pieces, strict=False):
                if line.get(cut) is None:
                    line[cut] = piece


def _runs(rows: Sequence[int]) -> Iterator[range]:
    """Rows that follow each other, together."""
    start = 0
    for at in range(1, len(rows) + 1):
        if at == len(rows) or rows[at] != rows[at - 1] + 1:
            yield range(rows[start], rows[at - 1] + 1)
            start = at
