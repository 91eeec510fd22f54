"""A command line: earlier lines by up and down, words completed by tab, ctrl+c for what runs."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.message import Message
from textual.widgets import Input

from sbxtui.tui.actions import Action
from sbxtui.tui.linehistory import LineHistory

LINE = "line"
LINE_ACTIONS = (
    Action("line_run", "enter", "run it", "", "Runs the line in the sandbox.", 1, LINE, changes=True, is_native=True),
    Action("line_stop", "ctrl+c", "stop", "", "Interrupts what runs; again: kills it. Else empties the line.", 2, LINE),
    Action("line_lend", "ctrl+t", "terminal", "sbx attach NAME JOB", "Lends it the whole terminal.", 3, LINE),
    Action("line_complete", "tab", "complete", "", "Completes a name; on an empty line: the next pane.", 4, LINE),
    Action("line_earlier", "up", "earlier", "", "The line before; with a part typed, one that has it.", 5, LINE),
    Action("line_later", "down", "later", "", "The line after.", 0, LINE),
)


class LineInput(Input):
    """Posts what the person asks for; the tab around it does it."""

    SCOPES: ClassVar[tuple[str, ...]] = (LINE,)

    class Asked(Message):
        """The person pressed `key` of the line's: `stop`, `lend` or `complete`."""

        def __init__(self, what: str) -> None:
            super().__init__()
            self.what = what

    class Pasted(Message):
        """Several lines were pasted."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, placeholder="a shell line, enter runs it", compact=True, select_on_focus=False)
        self.history = LineHistory()

    def use(self, history: LineHistory) -> None:
        """Walk through these lines from now on."""
        self.history = history
        self.history.rest()

    def put(self, text: str, cursor: int) -> None:
        """Write another text."""
        self.value = text
        self.cursor_position = cursor

    def do_line_run(self) -> None:
        """Run it, as enter does."""
        self.call_later(self.action_submit)

    def do_line_earlier(self) -> None:
        """The line before."""
        self._step(-1)

    def do_line_later(self) -> None:
        """The line after."""
        self._step(1)

    def do_line_stop(self) -> None:
        """Interrupt what runs."""
        self.post_message(self.Asked("stop"))

    def do_line_lend(self) -> None:
        """Lend the terminal to what runs."""
        self.post_message(self.Asked("lend"))

    def do_line_complete(self) -> None:
        """Complete the word under the cursor."""
        self.post_message(self.Asked("complete"))

    def _on_paste(self, event: events.Paste) -> None:
        lines = event.text.strip("\r\n")
        if len(lines.splitlines()) > 1:
            # Textual would keep the first line and drop the rest without a word.
            event.stop()
            event.prevent_default()
            self.post_message(self.Pasted(lines))
        else:
            super()._on_paste(event)

    def _step(self, by: int) -> None:
        line = self.history.step(by, typed=self.value)
        self.put(line, len(line))
