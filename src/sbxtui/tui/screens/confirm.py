"""Asking before something is lost: the dialog names what, and focus starts on Cancel."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Static

from sbxtui.core.text import harmless_line
from sbxtui.tui.enduring import Enduring

# Above this many, a key is too easy: the count has to be typed.
MOST_BY_KEY = 3


class ConfirmScreen(Enduring, ModalScreen[bool]):
    """Answers True only for `y`, the button, or, above three things, their typed count.

    Args:
        question: What would be done, as a question.
        things: What it would be done to, one line each; all are shown.
        consequence: What is lost, in words.
        verb: The button's word.
        about: What it is about, for whoever has more to say of it: `tell_more` is only for the same.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "answer(False)", "cancel"),
        Binding("y", "yes", "yes", show=False),
        Binding("n", "answer(False)", "no", show=False),
        Binding("left,right", "app.focus_next", show=False),
        Binding("down,j", "scroll(1)", show=False),
        Binding("up,k", "scroll(-1)", show=False),
    ]

    def __init__(self, question: str, things: Sequence[str], consequence: str, verb: str, about: object = None) -> None:
        super().__init__()
        self.question = harmless_line(question)
        self.things = [harmless_line(thing) for thing in things]
        self.consequence = consequence
        self.verb = verb
        self.about = about
        self._more: list[list[str]] = []
        # Made here, not in compose: more may be told as soon as this is the screen, before its widgets are there.
        self._list = Static(self._things_text(), markup=False, id="confirm-list")

    @property
    def is_typed(self) -> bool:
        """Whether the count has to be typed."""
        return len(self.things) > MOST_BY_KEY

    def compose(self) -> ComposeResult:
        with Vertical(id="confirm", classes="dialog") as dialog:
            # Plain text would be taken for markup.
            dialog.border_title = Content(self.question)
            dialog.border_subtitle = "esc cancels" if self.is_typed else "y confirms · esc cancels"
            with VerticalScroll(id="confirm-things", can_focus=False):
                yield self._list
            yield Static(self.consequence, markup=False, id="confirm-consequence")
            if self.is_typed:
                yield Static(f"Type {len(self.things)} and press enter to {self.verb} all of them:", markup=False)
                yield Input(id="confirm-count", compact=True)
            with Horizontal(id="confirm-buttons"):
                yield Button("Cancel", id="cancel", compact=True)
                yield Button(self.verb.capitalize(), id="yes", compact=True, disabled=self.is_typed)

    def on_mount(self) -> None:
        self.query_one("#cancel", Button).focus()

    @on(Button.Pressed)
    def pressed(self, event: Button.Pressed) -> None:
        """Answer by button."""
        self.dismiss(event.button.id == "yes")

    @on(Input.Changed, "#confirm-count")
    def count_changed(self, event: Input.Changed) -> None:
        """The button works once the count is right."""
        self.query_one("#yes", Button).disabled = not self._is_count(event.value)

    @on(Input.Submitted, "#confirm-count")
    def count_entered(self, event: Input.Submitted) -> None:
        """Answer by count; a wrong one changes nothing."""
        if self._is_count(event.value):
            self.dismiss(True)

    def tell_more(self, more: Sequence[Sequence[str]]) -> None:
        """Say more of each thing, in lines below it; `more` is in the order of the things."""
        self._more = [[harmless_line(line) for line in lines] for lines in more]
        self._list.update(self._things_text())

    def _things_text(self) -> str:
        lines = []
        for thing, more in zip_longest(self.things, self._more, fillvalue=()):
            lines += [f"  {thing}", *(f"      {line}" for line in more)]
        return "\n".join(lines)

    def action_yes(self) -> None:
        if self.is_typed:
            self.query_one("#confirm-count", Input).focus()
        else:
            self.dismiss(True)

    def action_answer(self, is_yes: bool) -> None:
        self.dismiss(is_yes)

    def action_scroll(self, lines: int) -> None:
        self.query_one("#confirm-things").scroll_relative(y=lines, animate=False)

    def _is_count(self, text: str) -> bool:
        return text.strip() == str(len(self.things))
