"""One of a few values, in one line: left and right, or a click, choose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import Static


class Picker(Static, can_focus=True):
    """Shows the chosen label between angles.

    Args:
        choices: Values with what a person reads, our own words; at least one.
        value: The value to begin with; the first when it is none of them.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left,h,minus", "step(-1)", "before", show=False),
        Binding("right,l,plus,space", "step(1)", "next", show=False),
        Binding("up", "app.focus_previous", "up", show=False),
        Binding("down", "app.focus_next", "down", show=False),
        Binding("enter", "screen.create", "create", show=False),
    ]

    class Changed(Message):
        """Another value was chosen."""

    def __init__(self, choices: Sequence[tuple[str, str]], value: str = "", *, id: str | None = None) -> None:
        self._choices = list(choices)
        self._at = next((at for at, (known, _) in enumerate(choices) if known == value), 0)
        super().__init__(self._label(), id=id, markup=False)

    @property
    def value(self) -> str:
        """The chosen value."""
        return self._choices[self._at][0]

    def call_choice(self, value: str, label: str) -> None:
        """Give a choice another label; there may be no screen yet."""
        self._choices = [(known, label if known == value else words) for known, words in self._choices]
        self.update(self._label())

    def on_click(self) -> None:
        self.action_step(1)

    def action_step(self, by: int) -> None:
        self._at = (self._at + by) % len(self._choices)
        self.update(self._label())
        self.post_message(self.Changed())

    def _label(self) -> str:
        label = self._choices[self._at][1]
        return f"‹ {label} ›" if len(self._choices) > 1 else f"  {label}"
