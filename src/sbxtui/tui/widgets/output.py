"""Shows a transcript: only visible lines are drawn, seldom enough for the way to the eye, and a paused view stays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, cast

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Size
from textual.message import Message
from textual.selection import Selection
from textual.strip import Strip
from textual.timer import Timer

from sbxtui.tui.actions import SANDBOXES, Action
from sbxtui.tui.widgets.folds import Folds
from sbxtui.tui.widgets.selecting import lit
from sbxtui.tui.widgets.styled import StyledView
from sbxtui.tui.widgets.transcript import Block, Kind, Line, Transcript

if TYPE_CHECKING:
    from sbxtui.tui.app import Dashboard

OUTPUT = "output"
OUTPUT_ACTIONS = (
    Action("output_down", "j,down", "down", scope=OUTPUT),
    Action("output_up", "k,up", "up", "", "Any way up pauses.", scope=OUTPUT),
    Action("output_page_down", "pagedown,ctrl+d", "page down", scope=OUTPUT),
    Action("output_page_up", "pageup,ctrl+u", "page up", scope=OUTPUT),
    Action("output_top", "g,home", "oldest", scope=OUTPUT),
    Action("output_follow", "G,end", "follow", "", "The end, and stay there.", 2, OUTPUT),
    Action("output_left", "h,left", "left", scope=OUTPUT),
    Action("output_right", "l,right", "right", scope=OUTPUT),
    Action("output_fold", "space,enter", "fold", "", "Folds a command's output, or shows it again.", 3, OUTPUT),
    Action("output_fold_all", "F", "fold all", "", "Folds all, or shows all again.", 5, OUTPUT),
    Action("output_next", "right_curly_bracket", "next", "", "The next command.", 0, OUTPUT),
    Action("output_previous", "left_curly_bracket", "command", "", "The command before.", 4, OUTPUT),
    Action("output_copy", "y", "copy", "", "What is selected, else what is on screen.", 6, OUTPUT),
    Action("output_stop", "ctrl+c", "stop", "", "Ends the running command.", 7, OUTPUT),
)

_SIDEWAYS_CELLS = 16


class OutputView(StyledView, can_focus=True):
    """Follows the end until somebody scrolls up; then it holds on to a line number, not to a row of the screen.

    Args:
        scopes: Scopes of actions that work here, too.
    """

    # No bar for going sideways: it would take the last line, and come and go with what is on screen.
    DEFAULT_CSS = """
    OutputView { overflow-x: hidden; scrollbar-size-horizontal: 0; scrollbar-size-vertical: 1; }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {f"output--{kind.value}" for kind in Kind} | {"output--lost"}

    class CopyAsked(Message):
        """The person wants to have this text."""

        def __init__(self, text: str, what: str) -> None:
            super().__init__()
            self.text = text
            self.what = what

    class Changed(Message):
        """Following or pausing changed, or there is more to say about what is kept."""

        def can_replace(self, message: Message) -> bool:
            return isinstance(message, OutputView.Changed)

    def __init__(self, scopes: Sequence[str] = (), *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.SCOPES = (OUTPUT, *scopes, SANDBOXES)
        self.transcript = Transcript()
        self.folds = Folds(self.transcript)
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
            self._paint_timer = self.set_timer(cast("Dashboard", self.app).paint_every_s, self._paint_now)

    def paint(self, *, is_more_below: bool = False) -> None:
        """Draw the transcript as it is now; a paused view keeps the line at its top.

        `is_more_below`: what is on screen is as it was.
        """
        folds = self.folds = Folds(self.transcript)
        self._grow(Size(max(self._widest, self.size.width), folds.rows))
        if self.is_following:
            self._top = folds.seq_at(max(0, folds.rows - self.size.height))
        self._top = max(self._top, self.transcript.first)
        self._is_painting = True
        # Forced: the scrollbar that would allow it appears only with the next layout.
        self.scroll_to(y=folds.row_of(self._top), animate=False, force=True)
        self._is_painting = False
        if not is_more_below:
            # Scrolling by nothing draws nothing; at the cap the lines move while the offset stays.
            self.refresh()
        self.post_message(self.Changed())

    @property
    def top_row(self) -> int:
        """The row at the top of the screen."""
        return self.folds.row_of(self._top)

    @property
    def newer_lines(self) -> int:
        """How many rows came in below the screen while paused."""
        return max(0, Folds(self.transcript).rows - self.top_row - self.size.height)

    def visible_text(self) -> str:
        """The lines on screen, for copying."""
        return "\n".join(self._text_of(row) for row in range(self.top_row, self.top_row + self.size.height)).rstrip()

    def current_block(self) -> Block | None:
        """The last block while following, else the one at the top of the screen."""
        if self.is_following:
            return self.transcript.blocks[-1] if self.transcript.blocks else None
        return self.folds.block_at(self.top_row)

    def render_line(self, y: int) -> Strip:
        width, row = self.size.width, self.scroll_offset.y + y
        line = self.transcript.line(self.folds.seq_at(row)) if row < self.folds.rows else None
        if line is None:
            return Strip.blank(width, self._style("base"))
        segments = [Segment(self._text_of(row), self._look(line))]
        selection = self.text_selection
        if selection is not None and (span := selection.get_span(row)) is not None:
            look = self.screen.get_component_rich_style("screen--selection")
            segments = lit(self._text_of(row), span, self._look(line), look)
        strip = Strip(segments)
        self._widest = max(self._widest, strip.cell_length)
        x = self.scroll_offset.x
        return strip.apply_offsets(0, row).crop_extend(x, x + width, self._style("base"))

    @property
    def allow_select(self) -> bool:
        """Text can be selected with the mouse."""
        return True

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The selected text and what stands between it and other widgets'."""
        first = selection.start.y if selection.start is not None else 0
        last = selection.end.y if selection.end is not None else self.folds.rows - 1
        lines = [self._text_of(row) for row in range(max(0, first), min(last, self.folds.rows - 1) + 1)]
        if not lines:
            return None
        if selection.end is not None and last < self.folds.rows:
            lines[-1] = lines[-1][: selection.end.x]
        if selection.start is not None:
            lines[0] = lines[0][selection.start.x :]
        return "\n".join(lines), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        """Draw it."""
        self.refresh()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        row = round(new_value)
        if self._is_painting or row == self.top_row:
            return
        # The person scrolled (wheel, bar or key): at the end means follow again.
        self._top = self.folds.seq_at(row)
        self._set_following(row + self.size.height >= self.folds.rows)

    def on_resize(self) -> None:
        self.paint()

    def on_click(self, event: events.Click) -> None:
        position = event.get_content_offset(self)
        if position is None or self.screen.get_selected_text():
            return
        row = self.scroll_offset.y + position.y
        block = self.folds.block_at(row)
        if block is not None and self.folds.seq_at(row) == block.start:
            self._fold(block)

    def do_output_down(self) -> None:
        """A line on."""
        self._go(self.top_row + 1)

    def do_output_up(self) -> None:
        """A line back."""
        self._go(self.top_row - 1)

    def do_output_page_down(self) -> None:
        """A page on."""
        self._go(self.top_row + max(1, self.size.height - 1))

    def do_output_page_up(self) -> None:
        """A page back."""
        self._go(self.top_row - max(1, self.size.height - 1))

    def do_output_top(self) -> None:
        """The oldest line."""
        self._go(0)

    def do_output_follow(self) -> None:
        """The end, and stay there."""
        self._set_following(True)
        self.paint()

    def do_output_left(self) -> None:
        """Sideways."""
        self._sideways(-1)

    def do_output_right(self) -> None:
        """Sideways."""
        self._sideways(1)

    def do_output_fold(self) -> None:
        """Fold the block at the top of the screen, or the last one while following."""
        if (block := self.current_block()) is not None:
            self._fold(block)

    def do_output_fold_all(self) -> None:
        """Fold all blocks, or unfold them when all are."""
        wanted = any(not block.is_folded for block in self.transcript.blocks)
        for block in self.transcript.blocks:
            block.is_folded = wanted
        self.paint()

    def do_output_next(self) -> None:
        """The next command to the top."""
        later = [block for block in self.transcript.blocks if block.start > self._top]
        if later:
            self._go(self.folds.row_of(later[0].start))
        else:
            self.do_output_follow()

    def do_output_previous(self) -> None:
        """The command before to the top."""
        earlier = [block for block in self.transcript.blocks if block.start < self._top]
        self._go(self.folds.row_of(earlier[-1].start) if earlier else 0)

    def do_output_copy(self) -> None:
        """Copy what is selected, else what is on screen."""
        selected = self.screen.get_selected_text()
        self.post_message(
            self.CopyAsked(selected or self.visible_text(), "the selection" if selected else "the screen")
        )

    def _fold(self, block: Block) -> None:
        block.is_folded = not block.is_folded
        self.paint()

    def _text_of(self, row: int) -> str:
        """A row's text: a command's shows whether it is folded, and then how it ended."""
        seq = self.folds.seq_at(row)
        line = self.transcript.line(seq)
        if line is None:
            return ""
        block = self.folds.block_at(row)
        if block is None or seq != block.start:
            return line.text
        if not block.is_folded:
            return f"▾ {line.text}"
        return f"▸ {line.text}  [{block.words or 'running'}]"

    def _go(self, row: int) -> None:
        last_row = max(0, self.folds.rows - self.size.height)
        self._top = self.folds.seq_at(max(0, min(row, last_row)))
        self._set_following(row >= last_row)
        self.paint()

    def _sideways(self, steps: int) -> None:
        self.virtual_size = Size(max(self._widest, self.size.width), self.virtual_size.height)
        self.scroll_to(x=max(0, self.scroll_offset.x + steps * _SIDEWAYS_CELLS), animate=False, force=True)

    def _set_following(self, is_following: bool) -> None:
        if is_following != self.is_following:
            self.is_following = is_following
            self.post_message(self.Changed())

    def _paint_now(self) -> None:
        self._paint_timer = None
        is_kept = self._top >= self.transcript.first
        is_full = self.top_row + self.size.height < self.folds.rows
        self.paint(is_more_below=is_kept and is_full and not self.is_following)

    def _look(self, line: Line) -> Style:
        return self._style(f"output--{line.kind.value}")
