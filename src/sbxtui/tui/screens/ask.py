"""Asking for one line: a name, a path. Says while it is typed what is wrong, or which command line does the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.suggester import Suggester
from textual.widgets import Input, Static

from sbxtui.core.text import harmless_line
from sbxtui.tui.enduring import Enduring


class AskScreen(Enduring, ModalScreen[str | None]):
    """Answers the line; None when it was left.

    Args:
        title: What is asked.
        value: What stands there at first.
        line: The command line that does the same with a value.
        check: What is wrong with a value; empty when nothing is.
        hint: Shown while nothing is typed.
        suggester: Completes what is typed; right arrow takes it.
        is_hidden: Whether what is typed is shown as dots.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "cancel"),
        Binding("ctrl+c", "leave", show=False),
    ]

    def __init__(
        self,
        title: str,
        value: str = "",
        *,
        line: Callable[[str], str],
        check: Callable[[str], str] = lambda value: "" if value else "nothing yet",
        hint: str = "",
        suggester: Suggester | None = None,
        is_hidden: bool = False,
    ) -> None:
        super().__init__()
        self.ask_title = harmless_line(title)
        self._value = value
        self._line = line
        self._check = check
        self._hint = hint
        self._suggester = suggester
        self._is_hidden = is_hidden

    def compose(self) -> ComposeResult:
        with Vertical(id="ask", classes="dialog") as dialog:
            dialog.border_title = Content(self.ask_title)
            dialog.border_subtitle = "enter does it · esc cancels"
            yield Input(
                self._value,
                placeholder=self._hint,
                password=self._is_hidden,
                id="ask-line",
                compact=True,
                suggester=self._suggester,
            )
            yield Static("", id="ask-says", markup=False)

    def on_mount(self) -> None:
        self.query_one(Input).focus()
        self._say()

    @on(Input.Changed)
    def changed(self) -> None:
        """Say what it would do."""
        self._say()

    @on(Input.Submitted)
    def submitted(self, event: Input.Submitted) -> None:
        """Answer, unless something is wrong."""
        if not self._check(event.value.strip()):
            self.dismiss(event.value.strip())

    def action_leave(self) -> None:
        self.dismiss(None)

    def _say(self) -> None:
        value = self.query_one(Input).value.strip()
        problem = self._check(value)
        says = self.query_one("#ask-says", Static)
        says.update(harmless_line(problem) or f"$ {harmless_line(self._line(value))}")
        says.set_class(bool(problem), "problem")
