"""Moving about on the main screen: panes, tabs, filter, marks, and up one level."""

from __future__ import annotations

from textual import events
from textual.widget import Widget
from textual.widgets import Input

from sbxtui.tui.actions import WHILE_TYPING
from sbxtui.tui.screens.doing import Doing
from sbxtui.tui.tabs.run import LineInput
from sbxtui.tui.widgets.panes import DetailPane, FilterInput
from sbxtui.tui.widgets.table import FleetTable


class Moving(Doing):
    """What changes the view only. `do` is the one entry of every key, click and palette line."""

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "do" and isinstance(self.focused, Input):
            return parameters[0] in WHILE_TYPING
        return super().check_action(action, parameters)

    def action_do(self, action_id: str) -> None:
        getattr(self, f"do_{action_id}")()

    def do_hint_quit(self) -> None:
        """Ctrl-C means many things to people; leaving by it would lose work."""
        self.tell("q quits · ctrl+c stops a command while its line has the focus")

    def do_run(self) -> None:
        """Go to the command line of the selected sandbox."""
        self.query_one(DetailPane).show_tab("run")
        self._to_front("detail", self.query_one(LineInput))

    def do_filter(self) -> None:
        """Open the filter."""
        box = self.query_one(FilterInput)
        box.display = True
        self.set_focus(box)

    def do_sort(self) -> None:
        """The next order."""
        self.fleet.sort_next()
        self.draw()

    def do_mark(self) -> None:
        """Mark the selected sandbox and go on to the next."""
        self.fleet.toggle_mark()
        self.fleet.move_to(self.fleet.cursor + 1)
        self.draw()

    def do_mark_all(self) -> None:
        """Mark all that is shown."""
        self.fleet.mark_shown()
        self.draw()

    def do_next_pane(self) -> None:
        """To the other pane."""
        if self.has_class("-detail-front"):
            self._to_front("fleet", self.query_one(FleetTable))
        else:
            self._to_front("detail", self.query_one(DetailPane).first_inside())

    def do_previous_pane(self) -> None:
        """To the other pane: there are two."""
        self.do_next_pane()

    def do_tab_1(self) -> None:
        """The overview."""
        self.query_one(DetailPane).show_tab("overview")

    def do_tab_2(self) -> None:
        """The run tab."""
        self.query_one(DetailPane).show_tab("run")

    def do_zoom(self) -> None:
        """The focused pane alone, or both again."""
        self.toggle_class("-zoomed")

    def do_back(self) -> None:
        """Up one level: detail, filter box, zoom, marks, filter."""
        box = self.query_one(FilterInput)
        if self.has_class("-detail-front"):
            self._to_front("fleet", self.query_one(FleetTable))
        elif box.has_focus:
            self.set_focus(self.query_one(FleetTable))
        elif self.has_class("-zoomed"):
            self.remove_class("-zoomed")
        elif self.fleet.marks:
            self.fleet.marks.clear()
        elif box.value or box.display:
            box.value = ""
            box.display = False
            self.fleet.set_filter("")
        self.draw()

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        is_detail = self.query_one("#detail") in event.widget.ancestors_with_self
        self.set_class(is_detail, "-detail-front")

    def draw(self) -> None:
        """Draw everything as it is now."""
        raise NotImplementedError

    def _to_front(self, pane: str, widget: Widget) -> None:
        """Focus a widget; where only one pane is shown, its pane is shown first."""
        self.set_class(pane == "detail", "-detail-front")
        # At once, so that the next key typed goes there; what is still hidden takes focus only when it is shown.
        if widget.focusable:
            self.set_focus(widget)
        else:
            self.call_after_refresh(self.set_focus, widget)
