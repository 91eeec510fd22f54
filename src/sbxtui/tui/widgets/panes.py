"""The two panes with their borders: the list with its freshness, and the detail with its tabs."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widget import Widget
from textual.widgets import ContentSwitcher, Input

from sbxtui.core.errors import SbxError
from sbxtui.core.model import SandboxRecord
from sbxtui.core.text import harmless_line
from sbxtui.tui import clock
from sbxtui.tui.fleet import Fleet
from sbxtui.tui.tabs.overview import OverviewTab
from sbxtui.tui.tabs.run import LineInput, RunTab
from sbxtui.tui.widgets.notice import Notice, notice_for
from sbxtui.tui.widgets.table import FleetTable
from sbxtui.tui.words import freshness_text, shown_name

TABS = (("overview", "1 Overview"), ("run", "2 Run"))


class FilterInput(Input):
    """The filter box, hidden until it is asked for."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "screen.do('back')", "back", show=False),
        Binding("ctrl+c", "screen.do('hint_quit')", show=False),
    ]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, placeholder="state:run age<1h !image:py text", compact=True, select_on_focus=False)
        self.border_title = "filter"


class FleetPane(Vertical):
    """The list, or what to do when there is none. The border tells how many are shown and how old that is."""

    def __init__(self, fleet: Fleet, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.fleet = fleet

    def compose(self) -> ComposeResult:
        yield FleetTable(self.fleet, id="table")
        yield Notice(id="notice")

    def show(self, opening_error: SbxError | None, isolation: str) -> None:
        """Draw the fleet as it is now."""
        notice = notice_for(self.fleet, opening_error, isolation)
        self.query_one(Notice).say(notice)
        self.query_one(FleetTable).show()
        self.set_class(not self.fleet.rows, "-empty")
        self._say_border()

    def tick(self) -> None:
        """Let ages grow."""
        self.query_one(FleetTable).tick()
        self._say_border()

    def _say_border(self) -> None:
        fleet = self.fleet
        title = f" Sandboxes {len(fleet.rows)}/{len(fleet.all)} · sort {fleet.sort} "
        if fleet.filter.text.strip():
            title += f"· /{harmless_line(fleet.filter.text, limit=40)} "
        if fleet.filter_error is not None:
            title += f"· {harmless_line(fleet.filter_error.message, limit=60)} "
        fresh = freshness_text(fleet.seen_at, clock.now(), fleet.error, is_cached=fleet.is_cached)
        _set_border(self, title, f" {fresh} " if fleet.context is not None else "")


class DetailPane(Vertical):
    """Tabs on the selected sandbox; their names stand in the border and can be clicked."""

    _name_shown = ""

    def compose(self) -> ComposeResult:
        with ContentSwitcher(initial="overview", id="tabs"):
            yield OverviewTab(id="overview")
            yield RunTab(id="run")

    def on_mount(self) -> None:
        self._say_border()

    def show(self, fleet: Fleet, record: SandboxRecord | None, isolation: str) -> None:
        """Show the sandbox under the cursor in every tab."""
        self.query_one(OverviewTab).show(fleet, record, isolation)
        self.query_one(RunTab).show(fleet.selected)
        name = shown_name(fleet.selected) if fleet.selected else ""
        if name != self._name_shown:
            self._name_shown = name
            self.border_subtitle = Content(f" {name} " if name else "")

    def show_tab(self, tab: str) -> None:
        """Bring a tab to the front; the focus stays in this pane if it was here."""
        has_focus = self.has_focus_within
        self.query_one(ContentSwitcher).current = tab
        self._say_border()
        if has_focus:
            self.screen.set_focus(self.first_inside())

    def first_inside(self) -> Widget:
        """What gets the focus when this pane does."""
        is_run = self.query_one(ContentSwitcher).current == "run"
        return self.query_one(LineInput) if is_run else self.query_one(OverviewTab)

    def _say_border(self) -> None:
        current = self.query_one(ContentSwitcher).current
        parts = [
            Content.from_markup(f"[@click=screen.do('tab_{at}')]{_tab_label(label, tab == current)}[/]")
            for at, (tab, label) in enumerate(TABS, start=1)
        ]
        self.border_title = Content(" ") + Content("  ").join(parts) + Content(" ")


def _tab_label(label: str, is_current: bool) -> str:
    return f"[bold underline]{label}[/]" if is_current else label


def _set_border(pane: Widget, title: str, subtitle: str) -> None:
    # Setting either draws the whole pane; plain text would be taken for markup.
    if str(pane.border_title) != title:
        pane.border_title = Content(title)
    if str(pane.border_subtitle) != subtitle:
        pane.border_subtitle = Content(subtitle)
