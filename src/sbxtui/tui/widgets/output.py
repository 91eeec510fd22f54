"""Shows a transcript: only visible lines are drawn, at most 15 times a second, and a paused view does not move."""

from __future__ import annotations

from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.timer import Timer

from sbxtui.tui.widgets.transcript import Kind, Line, Transcript

_PAINT_EVERY_S = 1 / 15
_SIDEWAYS_CELLS = 16


class OutputView(ScrollView, can_focus=True):
    """Follows the end until somebody scrolls up; then it holds on to a line number, not to a row of the screen."""

    # No bar for going sideways: it would take the last line, and come and go with what is on screen.
    DEFAULT_CSS = """
    OutputView { overflow-x: hidden; scrollbar-size-horizontal: 0; scrollbar-size-vertical: 1; }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {f"output--{kind.value}" for kind in Kind} | {"output--lost"}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j,down", "scroll_by(1)", "down", show=False),
        Binding("k,up", "scroll_by(-1)", "up", show=False),
        Binding("pagedown,ctrl+d", "scroll_page(1)", "page down", show=False),
        Binding("pageup,ctrl+u", "scroll_page(-1)", "page up", show=False),
        Binding("g,home", "top", "oldest", show=False),
        Binding("G,end", "follow", "follow", show=False),
        Binding("h,left", "sideways(-1)", "left", show=False),
        Binding("l,right", "sideways(1)", "right", show=False),
        Binding("y", "copy", "copy", show=False),
    ]

    class Changed(Message):
        """Following or pausing changed, or there is more to say about what is kept."""

        def can_replace(self, message: Message) -> bool:
            return isinstance(message, OutputView.Changed)

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.transcript = Transcript()
        self.is_following = True
        self._top = 0
        self._widest = 0
        self._paint_timer: Timer | None = None
        self._is_painting = False

    def show(self, transcript: Transcript) -> None:
        """Show another transcript, from its end."""
        self.transcript = transcript
        self.is_following = True
        self._widest = 0
        self.scroll_to(x=0, animate=False, force=True)
        self.paint()

    def wake(self) -> None:
        """Say that the transcript changed; it is painted soon, and once for many calls."""
        if self._paint_timer is None and self.is_attached:
            self._paint_timer = self.set_timer(_PAINT_EVERY_S, self._paint_now)

    def paint(self) -> None:
        """Draw the transcript as it is now."""
        lines = self.transcript.end - self.transcript.first
        self.virtual_size = Size(max(self._widest, self.size.width), lines)
        if self.is_following:
            self._top = max(self.transcript.first, self.transcript.end - self.size.height)
        self._top = max(self._top, self.transcript.first)
        self._is_painting = True
        # Forced: the scrollbar that would allow it appears only with the next layout.
        self.scroll_to(y=self._top - self.transcript.first, animate=False, force=True)
        self._is_painting = False
        # Scrolling by nothing draws nothing; at the cap the lines move while the offset stays.
        self.refresh()
        self.post_message(self.Changed())

    @property
    def newer_lines(self) -> int:
        """How many lines came in below the screen while paused."""
        return max(0, self.transcript.end - self._top - self.size.height)

    def visible_text(self) -> str:
        """The lines on screen, for copying."""
        shown = (self.transcript.line(self._top + y) for y in range(self.size.height))
        return "\n".join(line.text for line in shown if line is not None)

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        line = self.transcript.line(self.transcript.first + self.scroll_offset.y + y)
        if line is None:
            return Strip.blank(width, self.rich_style)
        style = self._style(line)
        strip = Strip([Segment(line.text, style)])
        self._widest = max(self._widest, strip.cell_length)
        x = self.scroll_offset.x
        return strip.crop_extend(x, x + width, self.rich_style)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        top = self.transcript.first + round(new_value)
        if self._is_painting or top == self._top:
            return
        # The person scrolled (wheel, bar or key): at the end means follow again.
        self._top = top
        self._set_following(top + self.size.height >= self.transcript.end)

    def on_resize(self) -> None:
        self.paint()

    def action_scroll_by(self, lines: int) -> None:
        self._go(self._top + lines)

    def action_scroll_page(self, pages: int) -> None:
        self._go(self._top + pages * max(1, self.size.height - 1))

    def action_top(self) -> None:
        self._go(self.transcript.first)

    def action_follow(self) -> None:
        self._set_following(True)
        self.paint()

    def action_sideways(self, steps: int) -> None:
        self.virtual_size = Size(max(self._widest, self.size.width), self.virtual_size.height)
        self.scroll_to(x=max(0, self.scroll_offset.x + steps * _SIDEWAYS_CELLS), animate=False, force=True)

    def action_copy(self) -> None:
        self.app.copy_to_clipboard(self.visible_text())
        self.notify("copied what is shown, by OSC 52 (your terminal may not allow it)", markup=False)

    def _go(self, top: int) -> None:
        last_top = max(self.transcript.first, self.transcript.end - self.size.height)
        self._top = max(self.transcript.first, min(top, last_top))
        self._set_following(top >= last_top)
        self.paint()

    def _set_following(self, is_following: bool) -> None:
        if is_following != self.is_following:
            self.is_following = is_following
            self.post_message(self.Changed())

    def _paint_now(self) -> None:
        self._paint_timer = None
        self.paint()

    def _style(self, line: Line) -> Style:
        return self.get_component_rich_style(f"output--{line.kind.value}")
