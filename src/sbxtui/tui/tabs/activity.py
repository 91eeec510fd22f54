"""The activity tab: every change any face made, as the command line that does it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import aclosing
from typing import ClassVar

from rich.cells import cell_len
from textual import on
from textual.app import ComposeResult
from textual.message import Message
from textual.widgets import Static

from sbxtui.core.model import Event
from sbxtui.core.text import counted, harmless_line, iso
from sbxtui.tui.actions import SANDBOXES, Action
from sbxtui.tui.changes import Change, changes_of
from sbxtui.tui.tabs.base import Tab, View
from sbxtui.tui.widgets.columns import fitted
from sbxtui.tui.widgets.rows import Row, RowList
from sbxtui.tui.working import worker

ACTIVITY = "activity"
ACTIONS = (
    Action("activity_copy", "y", "copy line", "", "Copies the command line under the cursor.", 2, ACTIVITY),
    Action("activity_open", "enter", "details", "", "All that is known of the change.", 3, ACTIVITY),
    Action("activity_scope", "A", "all or one", "sbx events NAME", "Of the selected sandbox, or of all.", 4, ACTIVITY),
)
# So many events are kept here; older ones are in `sbx events`.
MAX_EVENTS = 500
_MIN_WITH_ACTOR = 30


class ActivityTab(Tab):
    """A bounded list of changes, newest at the bottom; it follows the end until the cursor is moved up."""

    SCOPES: ClassVar[tuple[str, ...]] = (ACTIVITY, SANDBOXES)

    class Arrived(Message):
        """Events came in."""

        def __init__(self, events: Sequence[Event]) -> None:
            super().__init__()
            self.events = events

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.changes: list[Change] = []
        self.is_all = False
        self._events: list[Event] = []
        # None: no sandbox is selected, so all are meant.
        self._subject: str | None = None

    def compose(self) -> ComposeResult:
        yield RowList((ACTIVITY, SANDBOXES), id="changes")
        yield Static("", id="activity-status", markup=False)

    def opened(self) -> None:
        """Another store may be open now: forget what the one before told."""
        self._events.clear()
        if self.display:
            self.follow()

    def on_show(self) -> None:
        if self.main.is_open:
            self.follow()

    def on_hide(self) -> None:
        # What nobody sees is not polled for; what happens meanwhile is read when it is shown again.
        self.workers.cancel_group(self, "activity")

    @worker(exclusive=True, group="activity")
    async def follow(self) -> None:
        """Tell of events for as long as the tab lives."""
        from sbxtui.services.activity import follow_events

        services = self.services
        known = self._events[-1].seq if self._events else 0
        after = max(known, await asyncio.to_thread(services.events.latest_seq) - MAX_EVENTS)
        async with aclosing(follow_events(services.settings.home, services.events, after_seq=after)) as batches:
            async for batch in batches:
                self.post_message(self.Arrived(batch))

    @on(Arrived)
    def arrived(self, message: Arrived) -> None:
        """Show what happened."""
        known = self._events[-1].seq if self._events else 0
        self._events = [*self._events, *(one for one in message.events if one.seq > known)][-MAX_EVENTS:]
        self.changes = changes_of(self._events)
        self._draw()

    def show(self, view: View) -> None:
        """Keep the list on the selected sandbox, if it is not of all."""
        subject = view.sandbox.name if view.sandbox is not None else None
        if subject != self._subject:
            self._subject = subject
            if not self.is_all:
                self._draw(is_other=True)

    def first_inside(self) -> RowList:
        """The list."""
        return self.query_one(RowList)

    def on_resize(self) -> None:
        self._draw()

    @property
    def selected(self) -> Change | None:
        """The change under the cursor."""
        row = self.query_one(RowList).selected
        return next((one for one in self.changes if row is not None and str(one.seq) == row.key), None)

    def do_activity_copy(self) -> None:
        """Copy the line."""
        if self.selected is not None:
            self.main.copy(self.selected.line, "the command line")

    def do_activity_open(self) -> None:
        """Show all that is known of the change."""
        if self.selected is not None:
            self.main.open_page("A change", details_of(self.selected))

    @on(RowList.Opened)
    def row_opened(self) -> None:
        """A second click does the same."""
        self.do_activity_open()

    def do_activity_scope(self) -> None:
        """Of all, or of one."""
        self.is_all = not self.is_all
        self._draw()

    def _draw(self, *, is_other: bool = False) -> None:
        """Draw the list; that of another sandbox is shown from its end."""
        rows = self.query_one(RowList)
        is_all = self.is_all or self._subject is None
        shown = [one for one in self.changes if is_all or one.subject == self._subject]
        was_at_end = is_other or rows.cursor >= len(rows.rows) - 1
        # No wider than what stands in them: the line is what people read.
        widths = (_widest(one.result for one in shown), _widest(one.actor for one in shown))
        rows.show([_row(change, rows.size.width, *widths) for change in shown])
        if was_at_end:
            rows.move_to(len(shown) - 1)
        failed, odd = sum(one.is_failure for one in shown), sum(one.is_odd for one in shown)
        bad = f"{failed} failed" + f" · {odd} not exit 0" * bool(odd)
        of = "all sandboxes" if is_all else harmless_line(self._subject or "", limit=63) or "what has no name here"
        words = f"{counted(len(shown), 'change')} of {of} · {bad}" if shown else f"no changes of {of} yet"
        keys = self.keys_to("activity_scope")
        other = "" if self._subject is None else f" · {keys}: " + ("this one" if self.is_all else "all sandboxes")
        self.say("#activity-status", words + other)

    def keys_moved(self) -> None:
        """The line below says keys."""
        self._draw()


def _widest(texts: Iterable[str]) -> int:
    return max(map(cell_len, texts), default=0)


def _row(change: Change, width: int, result_width: int, actor_width: int) -> Row:
    took = "" if change.took_s is None else f"{change.took_s:.1f}s"
    head = f"{change.at.astimezone():%H:%M:%S} "
    tone = "warn" if change.is_failure else "good" if change.result == "ok" else "busy"
    room = max(0, width - 2 - len(head) - 1 - result_width - 7)
    actor = fitted(change.actor, min(12, room // 3, actor_width)) if room > _MIN_WITH_ACTOR else ""
    room -= cell_len(actor) + 1
    words = f"  {change.words}" if change.words else ""
    return Row(
        str(change.seq),
        (
            (head, "muted"),
            (fitted(change.result, result_width) + " ", tone),
            (f"{took:>6} ", "muted"),
            (actor + " " if actor else "", "muted"),
            (fitted(change.line + words, max(0, room)), ""),
        ),
    )


def details_of(change: Change) -> str:
    """A change as a page."""
    took = "not measured" if change.took_s is None else f"{change.took_s:.2f} s"
    facts = [
        ("when", iso(change.at)),
        ("who", change.actor),
        ("what", change.line),
        ("result", change.result),
        ("took", took),
        ("why", change.words),
        ("event", str(change.seq)),
    ]
    return "\n".join(f"{label:<8} {value}" for label, value in facts if value)
