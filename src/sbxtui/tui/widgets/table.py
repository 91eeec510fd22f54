"""The list of sandboxes: renders visible rows only, from the fleet, at fixed column widths."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import groupby
from operator import itemgetter
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.strip import Strip

from sbxtui.core.model import Sandbox, SandboxState
from sbxtui.core.values import dataclass
from sbxtui.tui import clock
from sbxtui.tui.actions import LIST, SANDBOXES
from sbxtui.tui.fleet import Fleet, key_of
from sbxtui.tui.widgets.columns import GUTTER_WIDTH, Slot, cell_text, fitted, layout, wrong_width
from sbxtui.tui.widgets.styled import StyledView
from sbxtui.tui.words import isolation_word, state_tone

# Ages of a minute and more are told in minutes: looking for those that changed is work for nothing most of the time.
_YOUNG = timedelta(minutes=1)
_AGES_EVERY = timedelta(seconds=10)
# When `59s` becomes `1m`.
_LAST = timedelta(seconds=1)
_ALWAYS = datetime.max.replace(tzinfo=UTC) - _LAST


@dataclass(frozen=True, slots=True)
class _Look:
    """Everything a row's look depends on but the theme."""

    texts: tuple[str, ...]
    slots: tuple[Slot, ...]
    is_cursor: bool
    is_marked: bool
    is_dim: bool
    is_tracked: bool


class FleetTable(StyledView, can_focus=True):
    """Shows a `Fleet`. Posts `Moved` when the cursor is on another sandbox, `Opened` for enter or a second click."""

    TONE_PREFIX = "table"
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "table--head",
        "table--muted",
        "table--cursor",
        "table--cursor-blurred",
        "table--mark",
        *(f"table--{tone}" for tone in ("good", "busy", "calm", "gone", "warn")),
    }
    SCOPES: ClassVar[tuple[str, ...]] = (LIST, SANDBOXES)
    # Focus changes the cursor's style only; the table is cheap enough to be drawn anew.
    is_lit: reactive[bool] = reactive(False)

    class Moved(Message):
        """The cursor is on another sandbox, or on none."""

    class Opened(Message):
        """The person wants the detail of the sandbox under the cursor."""

    class SortAsked(Message):
        """A column's head was clicked."""

        def __init__(self, keys: str) -> None:
            super().__init__()
            self.keys = keys

    def __init__(self, fleet: Fleet, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.fleet = fleet
        self._now = clock.now()
        self._slots: list[Slot] = []
        self._laid_out_width = 0
        # So long an age is told in seconds; the age of what is not known is one, too.
        self._young_until = self._now
        self._cursor_key = ""
        # What each line showed when it was last drawn: a look that tells nothing new draws nothing.
        self._drawn: dict[int, _Look | None] = {}

    def show(self) -> None:
        """Draw the fleet as it is now; to be called after every change of it."""
        self._now = clock.now()
        is_unknown = any(one.state is SandboxState.UNKNOWN for one in self.fleet.rows)
        newest = max((one.created_at for one in self.fleet.rows), default=self._now - _YOUNG)
        self._young_until = _ALWAYS if is_unknown else newest + _YOUNG
        self._lay_out(self.size.width)
        height = len(self.fleet.rows) + 1
        if self.virtual_size.height != height:
            self.virtual_size = Size(self.size.width, height)
        self._follow_cursor()
        self._draw_changes()
        self._tell_if_moved()

    def tick(self) -> None:
        """Draw the rows whose ages changed."""
        now = clock.now()
        if now - self._now >= _AGES_EVERY or now <= self._young_until + _LAST:
            self._now = now
            self._draw_changes()

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        if width != self._laid_out_width:
            # The first rows may be there before the size is.
            self._lay_out(width)
        if y == 0:
            return self._head(width)
        at = self.scroll_offset.y + y - 1
        look = self._drawn[y] = self._look_of(at)
        return Strip.blank(width, self._style("base")) if look is None else self._row(self.fleet.rows[at], look, width)

    def on_resize(self, event: events.Resize) -> None:
        self._lay_out(event.size.width)
        self.virtual_size = Size(event.size.width, len(self.fleet.rows) + 1)
        self._follow_cursor()

    def on_focus(self) -> None:
        self.is_lit = True

    def on_blur(self) -> None:
        self.is_lit = False

    def on_click(self, event: events.Click) -> None:
        position = event.get_content_offset(self)
        if position is None:
            return
        if position.y == 0:
            self._head_clicked(position.x)
            return
        at = self.scroll_offset.y + position.y - 1
        if at >= len(self.fleet.rows):
            return
        if at == self.fleet.cursor and event.chain > 1:
            self.post_message(self.Opened())
            return
        self._put_cursor(at)

    def do_list_down(self) -> None:
        """The next row."""
        self._put_cursor(self.fleet.cursor + 1)

    def do_list_up(self) -> None:
        """The row before."""
        self._put_cursor(self.fleet.cursor - 1)

    def do_list_first(self) -> None:
        """The first row."""
        self._put_cursor(0)

    def do_list_last(self) -> None:
        """The last row."""
        self._put_cursor(len(self.fleet.rows) - 1)

    def do_list_page_down(self) -> None:
        """A page on."""
        self._put_cursor(self.fleet.cursor + max(1, self.size.height - 2))

    def do_list_page_up(self) -> None:
        """A page back."""
        self._put_cursor(self.fleet.cursor - max(1, self.size.height - 2))

    def do_list_open(self) -> None:
        """The detail of the selected sandbox."""
        self.post_message(self.Opened())

    def _put_cursor(self, row: int) -> None:
        self.fleet.move_to(row)
        self._follow_cursor()
        self._draw_changes()
        self._tell_if_moved()

    def _tell_if_moved(self) -> None:
        selected = self.fleet.selected
        key = key_of(selected) if selected else ""
        if key != self._cursor_key:
            self._cursor_key = key
            self.post_message(self.Moved())

    def _follow_cursor(self) -> None:
        """Scroll as little as shows the cursor; the head takes the first line."""
        shown = self.size.height - 1
        if shown <= 0:
            return
        top, cursor = self.scroll_offset.y, self.fleet.cursor
        if cursor < top:
            self.scroll_to(y=cursor, animate=False, force=True)
        elif cursor >= top + shown:
            self.scroll_to(y=cursor - shown + 1, animate=False, force=True)

    def _lay_out(self, width: int) -> None:
        self._laid_out_width = width
        # Names here are plain; counting the cells of what thousands are called would be felt by who types.
        name_width = max((len(one.name) or len(f"({one.id})") for one in self.fleet.rows), default=0)
        slots = layout(width, name_width, wrong_width(self.fleet, self._now))
        if slots != self._slots:
            # The head too.
            self.refresh()
        self._slots = slots

    def _draw_changes(self) -> None:
        """Draw the lines that would look different from how they were drawn last."""
        top = self.scroll_offset.y
        changed = [y for y in range(1, self.size.height) if self._drawn.get(y) != self._look_of(top + y - 1)]
        if changed:
            self.refresh(*(Region(0, y, self.size.width, 1) for y in changed))

    def _look_of(self, at: int) -> _Look | None:
        if at >= len(self.fleet.rows):
            return None
        sandbox = self.fleet.rows[at]
        return _Look(
            tuple(cell_text(slot.column, sandbox, self.fleet, self._now) for slot in self._slots),
            tuple(self._slots),
            at == self.fleet.cursor,
            key_of(sandbox) in self.fleet.marks,
            self.fleet.is_dim(sandbox),
            sandbox.is_tracked,
        )

    def _head_clicked(self, x: int) -> None:
        for slot in self._slots:
            if slot.start <= x < slot.start + slot.width and slot.column.sort:
                is_same = self.fleet.sort == slot.column.sort and "," not in slot.column.sort
                self.post_message(self.SortAsked(f"-{slot.column.sort}" if is_same else slot.column.sort))

    def _head(self, width: int) -> Strip:
        style = self._style("table--head")
        text = " " * GUTTER_WIDTH + "  ".join(fitted(slot.column.name, slot.width) for slot in self._slots)
        return Strip([Segment(text, style)]).crop_extend(0, width, style)

    def _row(self, sandbox: Sandbox, look: _Look, width: int) -> Strip:
        base = self._base_style(look.is_cursor)
        mark_style = base + self._tone("mark") if look.is_marked else base
        parts = [("› " if look.is_cursor else "  ", base), ("✓ " if look.is_marked else "  ", mark_style)]
        for slot, text in zip(look.slots, look.texts, strict=True):
            # Reversed, a text colour would be a background: patches instead of one bar.
            style = base if base.reverse else base + self._cell_style(slot.column.name, sandbox, look.is_dim)
            parts.append((fitted(text, slot.width) + "  ", style))
        # A piece for each look: pieces are what drawing costs.
        runs = [Segment("".join(text for text, _ in run), style) for style, run in groupby(parts, itemgetter(1))]
        return Strip(runs).crop_extend(0, width, base)

    def _base_style(self, is_cursor: bool) -> Style:
        if not is_cursor:
            return self._style("base")
        return self._style("table--cursor" if self.is_lit else "table--cursor-blurred")

    def _cell_style(self, column: str, sandbox: Sandbox, is_dim: bool) -> Style:
        if is_dim:
            return self._tone("muted")
        if column == "STATE":
            return self._tone(state_tone(sandbox.state))
        if column == "ISOLATION" and isolation_word(sandbox).endswith("!"):
            return self._tone("warn")
        if column == "NAME" and sandbox.is_tracked:
            return Style.null()
        return self._tone("muted")
