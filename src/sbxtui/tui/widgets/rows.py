"""A list of lines with a cursor: draws visible rows only and stays on its row when the rows change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.segment import Segment
from textual import events
from textual.geometry import Size
from textual.message import Message
from textual.reactive import reactive
from textual.strip import Strip

from sbxtui.tui.actions import ROWS
from sbxtui.tui.themes import TONES
from sbxtui.tui.widgets.styled import StyledView


@dataclass(frozen=True, slots=True)
class Row:
    """One line: `cells` are harmless texts, each with the tone that colours it (empty for none)."""

    key: str
    cells: tuple[tuple[str, str], ...]


class RowList(StyledView, can_focus=True):
    """Shows rows. Posts `Moved` when the cursor is on another row, `Opened` for a second click.

    Args:
        scopes: Scopes of actions that work here, nearest first; moving about is always among them.
    """

    DEFAULT_CSS = "RowList { overflow-x: hidden; scrollbar-size-horizontal: 0; scrollbar-size-vertical: 1; }"
    TONE_PREFIX = "rows"
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "rows--cursor",
        "rows--cursor-blurred",
        *(f"rows--{tone}" for tone in TONES),
    }
    is_lit: reactive[bool] = reactive(False)

    class Moved(Message):
        """The cursor is on another row, or on none."""

        def __init__(self, rows: RowList) -> None:
            super().__init__()
            self.rows = rows

    class Opened(Message):
        """The person wants what is under the cursor."""

        def __init__(self, rows: RowList) -> None:
            super().__init__()
            self.rows = rows

    def __init__(self, scopes: Sequence[str], *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.SCOPES = (*scopes[:1], ROWS, *scopes[1:])
        self.rows: list[Row] = []
        self.cursor = 0

    @property
    def selected(self) -> Row | None:
        """The row under the cursor."""
        return self.rows[self.cursor] if self.rows else None

    def show(self, rows: Sequence[Row]) -> None:
        """Show `rows`; the cursor stays on its key, or where it was when that is gone."""
        before = self.selected
        if list(rows) == self.rows:
            return
        at_key = {row.key: at for at, row in enumerate(rows)}
        self.rows = list(rows)
        if before is not None and before.key in at_key:
            self.cursor = at_key[before.key]
        self.cursor = max(0, min(self.cursor, len(rows) - 1))
        self.virtual_size = Size(self.size.width, len(rows))
        self._follow_cursor()
        self.refresh()
        if (before.key if before else "") != (self.selected.key if self.selected else ""):
            self.post_message(self.Moved(self))

    def move_to(self, at: int) -> None:
        """Put the cursor on a row, or the nearest there is."""
        at = max(0, min(at, len(self.rows) - 1))
        if at == self.cursor:
            return
        self.cursor = at
        self._follow_cursor()
        self.refresh()
        self.post_message(self.Moved(self))

    def move_to_key(self, key: str) -> None:
        """Put the cursor on the row of a key, if there is one."""
        at = next((at for at, row in enumerate(self.rows) if row.key == key), None)
        if at is not None:
            self.move_to(at)

    def render_line(self, y: int) -> Strip:
        at = self.scroll_offset.y + y
        if at >= len(self.rows):
            return Strip.blank(self.size.width, self._style("base"))
        is_cursor = at == self.cursor
        base = self._style(("rows--cursor" if self.is_lit else "rows--cursor-blurred") if is_cursor else "base")
        width = self.size.width
        segments = [Segment("› " if is_cursor else "  ", base)]
        for text, tone in self.rows[at].cells:
            # Reversed, a text colour would be a background: patches instead of one bar.
            segments.append(Segment(text, base if base.reverse or not tone else base + self._tone(tone)))
        strip = Strip(segments)
        if strip.cell_length > width:
            # What is cut off is seen to be.
            strip = Strip([*strip.crop(0, width - 1), Segment("…", base)])
        return strip.crop_extend(0, width, base)

    def on_resize(self, event: events.Resize) -> None:
        self.virtual_size = Size(event.size.width, len(self.rows))
        self._follow_cursor()

    def on_focus(self) -> None:
        self.is_lit = True

    def on_blur(self) -> None:
        self.is_lit = False

    def on_click(self, event: events.Click) -> None:
        position = event.get_content_offset(self)
        if position is None or (at := self.scroll_offset.y + position.y) >= len(self.rows):
            return
        if at == self.cursor and event.chain > 1:
            self.post_message(self.Opened(self))
        self.move_to(at)

    def do_row_down(self) -> None:
        """The next row."""
        self.move_to(self.cursor + 1)

    def do_row_up(self) -> None:
        """The row before."""
        self.move_to(self.cursor - 1)

    def do_row_first(self) -> None:
        """The first row."""
        self.move_to(0)

    def do_row_last(self) -> None:
        """The last row."""
        self.move_to(len(self.rows) - 1)

    def do_row_page_down(self) -> None:
        """A page on."""
        self.move_to(self.cursor + max(1, self.size.height - 1))

    def do_row_page_up(self) -> None:
        """A page back."""
        self.move_to(self.cursor - max(1, self.size.height - 1))

    def _follow_cursor(self) -> None:
        top, height = self.scroll_offset.y, self.size.height
        if self.cursor < top:
            self.scroll_to(y=self.cursor, animate=False, force=True)
        elif height and self.cursor >= top + height:
            self.scroll_to(y=self.cursor - height + 1, animate=False, force=True)
