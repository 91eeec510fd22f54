"""Choosing one of a few things."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen

from sbxtui.core.text import harmless_line
from sbxtui.tui.enduring import Enduring
from sbxtui.tui.widgets.rows import Row, RowList


class ChooseScreen(Enduring, ModalScreen[str | None]):
    """Answers the key of what was chosen; None for nothing.

    Args:
        title: What is chosen.
        choices: Key, and the texts beside each other, most important first.
        current: The key the cursor starts on.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "leave", "cancel"),
        Binding("enter", "choose", "choose"),
        Binding("j,down,tab", "move(1)", "down", show=False),
        Binding("k,up,shift+tab", "move(-1)", "up", show=False),
    ]

    def __init__(self, title: str, choices: Sequence[tuple[str, str, str]], current: str = "") -> None:
        super().__init__()
        self.choice_title = harmless_line(title)
        width = max((len(harmless_line(name)) for _, name, _ in choices), default=0)
        self._rows = [
            Row(key, ((f"{harmless_line(name, limit=60):<{min(width, 60)}}  ", ""), (harmless_line(words), "muted")))
            for key, name, words in choices
        ]
        self._current = current

    def compose(self) -> ComposeResult:
        with Vertical(id="choose", classes="dialog") as dialog:
            dialog.border_title = Content(self.choice_title)
            dialog.border_subtitle = "enter chooses · esc cancels"
            rows = RowList(("choose",), id="choices")
            rows.styles.height = max(1, min(len(self._rows), 12))
            yield rows

    def on_mount(self) -> None:
        rows = self.query_one(RowList)
        rows.show(self._rows)
        rows.move_to_key(self._current)
        rows.focus()

    @on(RowList.Opened)
    def action_choose(self) -> None:
        row = self.query_one(RowList).selected
        self.dismiss(row.key if row is not None else None)

    def action_leave(self) -> None:
        self.dismiss(None)

    def action_move(self, by: int) -> None:
        rows = self.query_one(RowList)
        rows.move_to(rows.cursor + by)
