"""Moving about on the main screen: panes, tabs, filter, marks, and up one level."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from textual import events
from textual.widget import Widget
from textual.widgets import Input

from sbxtui.tui.actions import SANDBOXES, Action, Needs
from sbxtui.tui.screens.helping import Helping
from sbxtui.tui.widgets.bars import KeyBar
from sbxtui.tui.widgets.panes import DetailPane, FilterInput
from sbxtui.tui.widgets.table import FleetTable


class Moving(Helping):
    """What changes the view only. `do` is the one entry of every key, click and palette line."""

    # What was there when the keys were said last.
    _told_has = Needs.NOTHING
    _focused_last: Widget | None = None

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action != "do":
            return super().check_action(action, parameters)
        action_id, *keys = parameters
        return any(one.id == action_id and set(keys) <= set(one.keys.split(",")) for one in self.actions_here())

    async def action_do(self, action_id: str, key: str = "") -> None:
        # What is typed before all tabs are there waits for them.
        await self.query_one(DetailPane).filled.wait()
        self.act(action_id)

    def act(self, action_id: str) -> None:
        """Do an action of the registry, wherever it lives."""
        if self.keymap.get(action_id) is None:
            self.tell("this dashboard is read-only", "warning")
            return
        self._doer(action_id)()

    def _doer(self, action_id: str) -> Callable[[], None]:
        """The method of the focused widget, of one around it, of a tab, or of this screen."""
        if action_id.startswith("tab_"):
            return partial(self.query_one(DetailPane).show_tab, action_id.removeprefix("tab_"))
        near = self.focused.ancestors_with_self if self.focused is not None else ()
        for place in (*near, self, *self.query_one(DetailPane).tabs):
            if (method := getattr(place, f"do_{action_id}", None)) is not None:
                return method  # type: ignore[no-any-return]  # every do_ method is one
        raise LookupError(f"no do_{action_id}")

    def scopes(self) -> Sequence[str]:
        """Where the focus is, nearest first."""
        near: Any = self.focused.ancestors_with_self if self.focused is not None else ()
        return next((place.SCOPES for place in near if hasattr(place, "SCOPES")), (SANDBOXES,))

    def actions_here(self) -> list[Action]:
        """The actions whose keys work where the focus is."""
        return self.keymap.here(self.scopes(), is_typing=isinstance(self.focused, Input))

    def do_run(self) -> None:
        """Go to the command line of the selected sandbox."""
        self._to_tab("shell")

    def do_filter(self) -> None:
        """Open the filter."""
        box = self.query_one(FilterInput)
        box.display = True
        self.set_focus(box)

    def do_filter_keep(self) -> None:
        """Back to the list."""
        self._to_front("fleet", self.query_one(FleetTable))

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
        """To the next pane: the list, the tab, the pinned tab."""
        self._step_pane(1)

    def do_previous_pane(self) -> None:
        """To the pane before."""
        self._step_pane(-1)

    def do_next_tab(self) -> None:
        """The next tab."""
        self.query_one(DetailPane).step(1)

    def do_previous_tab(self) -> None:
        """The tab before."""
        self.query_one(DetailPane).step(-1)

    def do_pin(self) -> None:
        """Keep this tab in view, or let it go."""
        pinned = self.query_one(DetailPane).toggle_pin()
        self.tell(f"{pinned} stays in view below the other tabs; P lets it go" if pinned else "nothing is pinned")

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

    def keep_focus(self) -> None:
        """A screen that was too small for a moment hid what had the focus: it gets it back with its place."""
        if self.focused is None and self.is_current:
            self.call_after_refresh(self._focus_again)

    def _focus_again(self) -> None:
        last = self._focused_last
        if self.focused is None:
            self.set_focus(last if last is not None and last.focusable else self.query_one(FleetTable))

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        self._focused_last = event.widget
        is_detail = self.query_one("#detail") in event.widget.ancestors_with_self
        self.set_class(is_detail, "-detail-front")
        if not isinstance(event.widget, FilterInput):
            # What filters stands in the list's border; the line is for typing it.
            self.query(FilterInput).set(display=False)
        self._show_keys()

    def on_screen_suspend(self) -> None:
        # A dialog is over this screen: it says its own keys.
        self.query_one(KeyBar).show(())

    def on_screen_resume(self) -> None:
        self._show_keys()
        self.dashboard.say_held()

    def on_descendant_blur(self) -> None:
        self._show_keys()

    def has(self) -> Needs:
        """What is there to act on."""
        if self.fleet.selected is not None:
            return Needs.ONE
        return Needs.SOME if self.fleet.all else Needs.NOTHING

    def _show_keys(self) -> None:
        """Say the keys that work where the focus is and have something to work on."""
        self._told_has = self.has()
        self.query_one(KeyBar).show([one for one in self.actions_here() if one.needs <= self._told_has])
        for tab in self.query_one(DetailPane).shown_tabs():
            tab.keys_moved()

    def draw(self) -> None:
        """Draw everything as it is now."""
        raise NotImplementedError

    def _step_pane(self, by: int) -> None:
        stops: list[tuple[str, Widget]] = [("fleet", self.query_one(FleetTable))]
        for tab in self.query_one(DetailPane).shown_tabs():
            stops += [("detail", stop) for stop in tab.stops() if stop.can_focus and not stop.disabled]
        near = set(self.focused.ancestors_with_self) if self.focused is not None else set()
        at = next((place for place, (_, stop) in enumerate(stops) if stop in near), 0)
        self._to_front(*stops[(at + by) % len(stops)])

    def _to_tab(self, tab_id: str) -> None:
        detail = self.query_one(DetailPane)
        detail.show_tab(tab_id)
        self._to_front("detail", detail.tab(tab_id).first_inside())

    def _to_front(self, pane: str, widget: Widget) -> None:
        """Focus a widget; where only one pane is shown, its pane is shown first."""
        self.set_class(pane == "detail", "-detail-front")
        # At once, so that the next key typed goes there; what is still hidden takes focus only when it is shown.
        if widget.focusable:
            self.set_focus(widget)
        else:
            self.call_after_refresh(self.set_focus, widget)
