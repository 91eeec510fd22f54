"""Shows a preview: visible lines only, without wrapping."""

from __future__ import annotations

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip

from sbxtui.tui.actions import ROWS, SANDBOXES
from sbxtui.tui.preview import NOTHING, Preview
from sbxtui.tui.widgets.selecting import lit

FILE, VIEW = "file", "view"
_SIDEWAYS_CELLS = 16


class FileView(ScrollView, can_focus=True):
    """A file's first part, or a patch; scrolled by the keys of a list.

    Args:
        scopes: Scopes of its keys, nearest first, before those of a list.
    """

    DEFAULT_CSS = "FileView { overflow-x: hidden; scrollbar-size-horizontal: 0; scrollbar-size-vertical: 1; }"

    def __init__(self, scopes: tuple[str, ...] = (FILE, VIEW), *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.SCOPES = (*scopes, ROWS, SANDBOXES)
        self.preview: Preview = NOTHING

    def show(self, preview: Preview) -> None:
        """Show another one, from its start; the same one, in other colours, from where it is."""
        is_same = (preview.path, preview.texts) == (self.preview.path, self.preview.texts)
        self.preview = preview
        widest = max((len(text) for text in preview.texts), default=0)
        self.virtual_size = Size(max(widest, self.size.width), len(preview.texts))
        if not is_same:
            self.scroll_to(x=0, y=0, animate=False, force=True)
        self.refresh()

    def render_line(self, y: int) -> Strip:
        width, x = self.size.width, self.scroll_offset.x
        at = self.scroll_offset.y + y
        base = self.rich_style
        if at >= len(self.preview.texts):
            return Strip.blank(width, base)
        # The background is the pane's: a style's own would be a patch.
        segments = [Segment(part.text, base + _foreground(part.style)) for part in self.preview.lines[at]]
        selection = self.text_selection
        if selection is not None and (span := selection.get_span(at)) is not None:
            look = self.screen.get_component_rich_style("screen--selection")
            segments = lit(self.preview.texts[at], span, base, look)
        return Strip(segments).apply_offsets(0, at).crop_extend(x, x + width, base)

    @property
    def allow_select(self) -> bool:
        """Text can be selected with the mouse."""
        return True

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The selected text."""
        return selection.extract("\n".join(self.preview.texts)), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        """Draw it."""
        self.refresh()

    def do_row_down(self) -> None:
        """A line on."""
        self._go(self.scroll_offset.y + 1)

    def do_row_up(self) -> None:
        """A line back."""
        self._go(self.scroll_offset.y - 1)

    def do_row_page_down(self) -> None:
        """A page on."""
        self._go(self.scroll_offset.y + max(1, self.size.height - 1))

    def do_row_page_up(self) -> None:
        """A page back."""
        self._go(self.scroll_offset.y - max(1, self.size.height - 1))

    def do_row_first(self) -> None:
        """The start."""
        self._go(0)

    def do_row_last(self) -> None:
        """The end of what is shown."""
        self._go(len(self.preview.texts))

    def do_view_left(self) -> None:
        """Sideways."""
        self.scroll_to(x=max(0, self.scroll_offset.x - _SIDEWAYS_CELLS), animate=False, force=True)

    def do_view_right(self) -> None:
        """Sideways."""
        self.scroll_to(x=self.scroll_offset.x + _SIDEWAYS_CELLS, animate=False, force=True)

    def _go(self, row: int) -> None:
        last = max(0, len(self.preview.texts) - self.size.height)
        self.scroll_to(y=max(0, min(row, last)), animate=False, force=True)


def _foreground(style: Style | None) -> Style:
    return Style(color=style.color, bold=style.bold, italic=style.italic) if style is not None else Style.null()
