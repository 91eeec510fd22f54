"""A page of text over the dashboard: help, a record, an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from sbxtui.core.text import harmless, harmless_line
from sbxtui.tui.enduring import Enduring
from sbxtui.tui.words import hung


class PageText(Static):
    """Text whose lines, where they are too long, go on below where they say something."""

    def __init__(self, text: str, *, id: str | None = None) -> None:
        super().__init__(text, markup=False, id=id)
        self._text = text

    def on_resize(self) -> None:
        self.update(Content(hung(self._text, self.size.width)))


class PageScreen(Enduring, ModalScreen[None]):
    """Shows a title and harmless text; esc, q or enter closes it, y hands the text to `on_copy`."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter,question_mark", "close", "close"),
        Binding("y", "copy", "copy"),
        Binding("j,down", "scroll(1)", "down", show=False),
        Binding("k,up", "scroll(-1)", "up", show=False),
    ]

    def __init__(self, title: str, text: str, on_copy: Callable[[str], None]) -> None:
        super().__init__()
        self._on_copy = on_copy
        self.page_title = harmless_line(title)
        self.text = harmless(text)

    def compose(self) -> ComposeResult:
        with Vertical(id="page", classes="dialog") as dialog:
            # Plain text would be taken for markup.
            dialog.border_title = Content(self.page_title)
            dialog.border_subtitle = "esc closes · y copies"
            with VerticalScroll(id="page-body"):
                yield PageText(self.text, id="page-text")

    def action_close(self) -> None:
        self.dismiss(None)

    def action_copy(self) -> None:
        self._on_copy(self.text)
        # Where it went is told when this page is closed.
        self.query_one("#page").border_subtitle = "copied · esc closes"

    def action_scroll(self, lines: int) -> None:
        self.query_one("#page-body").scroll_relative(y=lines, animate=False)
