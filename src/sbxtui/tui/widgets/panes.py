"""The two panes with their borders: the list with its freshness, and the detail with its tabs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ClassVar

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Input

from sbxtui.core.errors import SbxError
from sbxtui.core.text import harmless_line
from sbxtui.tui import clock
from sbxtui.tui.actions import FILTER
from sbxtui.tui.enduring import Enduring
from sbxtui.tui.fleet import Fleet
from sbxtui.tui.tabs.base import Tab, View
from sbxtui.tui.tabs.registry import TABS, all_actions
from sbxtui.tui.widgets.needs import NeedsView
from sbxtui.tui.widgets.notice import Notice, notice_for
from sbxtui.tui.widgets.table import FleetTable
from sbxtui.tui.words import freshness_text, shown_name

# Corners and what Textual keeps clear beside a title.
_BORDER_ENDS = 6


class FilterInput(Input):
    """The filter box, hidden until it is asked for."""

    SCOPES: ClassVar[tuple[str, ...]] = (FILTER,)

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, placeholder="state:run age<1h !image:py text", compact=True, select_on_focus=False)
        self.border_title = "filter"


class FleetPane(Enduring, Vertical):
    """The list, or what to do when there is none. The border tells how many are shown and how old that is."""

    def __init__(self, fleet: Fleet, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.fleet = fleet

    def compose(self) -> ComposeResult:
        yield FleetTable(self.fleet, id="table")
        yield Notice(id="notice")
        yield NeedsView(id="needs")

    def show(self, opening_error: SbxError | None, isolation: str, key_to: Callable[[str], str]) -> None:
        """Draw the fleet as it is now; `key_to` tells the key of an action by its id."""
        notice = notice_for(self.fleet, opening_error, isolation)
        self.query_one(Notice).say(notice)
        self.query_one(FleetTable).show()
        self.query_one(NeedsView).show(self.fleet, key_to)
        self.set_class(not self.fleet.rows, "-empty")
        self._say_border()

    def tick(self) -> None:
        """Let ages grow."""
        self.query_one(FleetTable).tick()
        self._say_border()

    def _say_border(self) -> None:
        fleet = self.fleet
        title = f"Sandboxes {len(fleet.rows)}/{len(fleet.all)}"
        if fleet.filter.text.strip():
            title += f" · /{harmless_line(fleet.filter.text, limit=40)}"
        title += f" · sort {fleet.sort}"
        if fleet.filter_error is not None:
            title += f" · {harmless_line(fleet.filter_error.message, limit=60)}"
        fresh = freshness_text(fleet.seen_at, clock.now(), fleet.error, is_cached=fleet.is_cached)
        _set_border(self, title, fresh if fleet.context is not None else "")


class DetailPane(Enduring, Vertical):
    """Tabs on the selected sandbox; their names stand in the border and can be clicked. One may be pinned below.

    Args:
        on_filled: Called once, when all tabs are there.

    Attributes:
        tabs: Those that are there: until `filled` is set, only the first.
    """

    def __init__(self, on_filled: Callable[[], None], *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._on_filled = on_filled
        self.tabs: list[Tab] = [TABS[0].kind(id=TABS[0].id)]
        self.current = TABS[0].id
        self.pinned = ""
        self._name_shown = ""
        self._view: View | None = None
        self._is_opened = False
        self.filled = asyncio.Event()

    def compose(self) -> ComposeResult:
        yield from self.tabs

    def on_mount(self) -> None:
        self._arrange()

    async def fill(self) -> None:
        """Make the tabs that the first frame does not show: it would wait for them as long as for all the rest."""
        await asyncio.to_thread(all_actions)
        others = [spec.kind(id=spec.id) for spec in TABS[1:]]
        for tab in others:
            tab.display = False
        await self.mount_all(others)
        self.tabs += others
        self._arrange()
        for tab in others:
            if self._is_opened:
                tab.opened()
            if self._view is not None:
                tab.show(self._view)
        self._on_filled()
        self.filled.set()

    def tab(self, tab_id: str) -> Tab:
        """The tab of an id."""
        return next(tab for tab in self.tabs if tab.id == tab_id)

    def shown_tabs(self) -> list[Tab]:
        """The tabs in view, top first."""
        return [self.tab(one) for one in dict.fromkeys((self.current, self.pinned)) if one]

    def opened(self) -> None:
        """The store is open: background work of the tabs may begin."""
        self._is_opened = True
        for tab in self.tabs:
            tab.opened()

    def show(self, view: View) -> None:
        """Show the sandbox under the cursor in every tab."""
        self._view = view
        for tab in self.tabs:
            tab.show(view)
        name = shown_name(view.sandbox) if view.sandbox else ""
        if name != self._name_shown:
            self._name_shown = name
            self.border_subtitle = Content(name)

    def show_tab(self, tab_id: str) -> None:
        """Bring a tab to the front; the focus stays in this pane if it was here."""
        has_focus = self.has_focus_within
        self.current = tab_id
        self._arrange()
        self.tab(tab_id).brought()
        if has_focus:
            self.screen.set_focus(self.tab(tab_id).first_inside())

    def step(self, by: int) -> None:
        """The next tab, or the one before."""
        ids = [spec.id for spec in TABS]
        self.show_tab(ids[(ids.index(self.current) + by) % len(ids)])

    def toggle_pin(self) -> str:
        """Pin the current tab, or let the pinned one go; returns the name of what is pinned now."""
        self.pinned = "" if self.pinned == self.current else self.current
        self._arrange()
        return next((spec.label for spec in TABS if spec.id == self.pinned), "")

    def first_inside(self) -> Widget:
        """What gets the focus when this pane does."""
        return self.tab(self.current).first_inside()

    def _arrange(self) -> None:
        """Show the current tab, and the pinned one below it."""
        shown = self.shown_tabs()
        for tab in self.tabs:
            tab.display = tab in shown
            is_pinned = tab.id == self.pinned and tab.id != self.current
            tab.set_class(is_pinned, "-pinned")
            tab.border_title = Content(f"pinned: {_label_of(tab)}") if is_pinned else Content("")
        if self.pinned:
            last = self.children[-1]
            if last is not self.tab(self.pinned):
                self.move_child(self.tab(self.pinned), after=last)
        self._say_border()

    def on_resize(self) -> None:
        self._say_border()

    def _say_border(self) -> None:
        """Keys and names of the tabs; where there is no room for all names, the last ones have their key alone."""
        named, gap = _named(self.current, self.size.width - _BORDER_ENDS - len("*"))
        parts = []
        for at, spec in enumerate(TABS, start=1):
            label = f"{at} {spec.label}" if spec.id in named else str(at)
            pin = "*" if spec.id == self.pinned else ""
            words = _tab_label(label + pin, spec.id == self.current)
            parts.append(Content.from_markup(f"[@click=screen.do('tab_{spec.id}')]{words}[/]"))
        self.border_title = Content(gap).join(parts)


def _named(current: str, room: int) -> tuple[set[str], str]:
    """Which tabs are named in so many columns, the current one always; and what stands between two."""
    left = room - sum(len(f"{at} ") for at, _ in enumerate(TABS, start=1))
    named: set[str] = set()
    for spec in sorted(TABS, key=lambda spec: spec.id != current):
        left -= len(spec.label) + 1
        if left < 0 and spec.id != current:
            return named, " "
        named.add(spec.id)
    return named, "  " if left >= len(TABS) else " "


def _label_of(tab: Tab) -> str:
    return next(spec.label for spec in TABS if spec.id == tab.id)


def _tab_label(label: str, is_current: bool) -> str:
    return f"[bold underline]{label}[/]" if is_current else label


def _set_border(pane: Widget, title: str, subtitle: str) -> None:
    # Setting either draws the whole pane; plain text would be taken for markup.
    if str(pane.border_title) != title:
        pane.border_title = Content(title)
    if str(pane.border_subtitle) != subtitle:
        pane.border_subtitle = Content(subtitle)
