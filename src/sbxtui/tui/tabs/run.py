"""Tab 2: run shell lines in the selected sandbox. One line is one command; nothing is kept between them."""

from __future__ import annotations

from time import monotonic
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Input, Static

from sbxtui.core.model import Sandbox, SandboxState
from sbxtui.tui.actions import SANDBOXES, Action
from sbxtui.tui.fleet import early_key_of, key_of
from sbxtui.tui.tabs.base import Tab, View
from sbxtui.tui.widgets.output import OUTPUT, OUTPUT_ACTIONS, OutputView
from sbxtui.tui.widgets.transcript import Transcript
from sbxtui.tui.words import shown_name, state_text

_HISTORY_LINES = 200
LINE = "line"
ACTIONS = (
    Action("line_run", "enter", "run it", "", "Runs the line in the sandbox.", 1, LINE, changes=True, is_native=True),
    Action("line_stop", "ctrl+c", "stop", "", "Ends the running command; else empties the line.", 2, LINE),
    Action("line_earlier", "up", "earlier", "", "The line before.", 3, LINE),
    Action("line_later", "down", "later", "", "The line after.", 0, LINE),
    *OUTPUT_ACTIONS,
)


class LineInput(Input):
    """A command line: up and down walk through earlier lines, ctrl+c stops what runs."""

    SCOPES: ClassVar[tuple[str, ...]] = (LINE,)

    class StopAsked(Message):
        """The person wants the running command to end."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, placeholder="a shell line, enter runs it", compact=True, select_on_focus=False)
        self.lines: list[str] = []
        self._at = 0

    def remember(self, line: str) -> None:
        """Keep a line that was run, unless it is the last one again."""
        if line not in self.lines[-1:]:
            self.lines = [*self.lines, line][-_HISTORY_LINES:]
        self._at = len(self.lines)

    def do_line_run(self) -> None:
        """Run it, as enter does."""
        self.call_later(self.action_submit)

    def do_line_earlier(self) -> None:
        """The line before."""
        self._step_history(-1)

    def do_line_later(self) -> None:
        """The line after."""
        self._step_history(1)

    def do_line_stop(self) -> None:
        """End what runs."""
        self.post_message(self.StopAsked())

    def _step_history(self, by: int) -> None:
        self._at = max(0, min(self._at + by, len(self.lines)))
        self.value = self.lines[self._at] if self._at < len(self.lines) else ""
        self.cursor_position = len(self.value)


class RunTab(Tab):
    """Output above, line below. Each sandbox has its own transcript, which goes on while another one is shown."""

    SCOPES: ClassVar[tuple[str, ...]] = (OUTPUT, SANDBOXES)

    class Submitted(Message):
        """Run `line` in `sandbox`."""

        def __init__(self, sandbox: Sandbox, line: str, transcript: Transcript) -> None:
            super().__init__()
            self.sandbox = sandbox
            self.line = line
            self.transcript = transcript

    class StopAsked(Message):
        """End what runs in `transcript`."""

        def __init__(self, transcript: Transcript) -> None:
            super().__init__()
            self.transcript = transcript

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.transcripts: dict[str, Transcript] = {}
        self.sandbox: Sandbox | None = None
        self._began: dict[str, float] = {}

    def compose(self) -> ComposeResult:
        yield OutputView(id="output")
        yield Static(id="run-status", markup=False)
        with Horizontal(id="run-line"):
            yield Static("$ ", id="run-prompt", markup=False)
            yield LineInput(id="line")

    def first_inside(self) -> LineInput:
        """The line."""
        return self.query_one(LineInput)

    def stops(self) -> list[Widget]:
        """The line, then the output."""
        return [self.query_one(LineInput), self.query_one(OutputView)]

    def tick(self) -> None:
        """What runs runs longer."""
        transcript = self._transcript()
        if transcript is not None and transcript.is_running:
            self.refresh_status()

    def show(self, view: View) -> None:
        """Show the transcript of the sandbox under the cursor."""
        sandbox = view.sandbox
        is_other = self.sandbox is None or sandbox is None or key_of(sandbox) != key_of(self.sandbox)
        self.sandbox = sandbox
        self._keep_early_transcript()
        self.query_one(LineInput).disabled = sandbox is None or self.is_read_only
        if is_other:
            self.query_one(OutputView).show(self._transcript() or Transcript())
        self.refresh_status()

    def _keep_early_transcript(self) -> None:
        """What was run in a sandbox before it had its id stays with it."""
        if self.sandbox is None or not self.sandbox.id or not self.sandbox.name:
            return
        early, late = early_key_of(self.sandbox), key_of(self.sandbox)
        if early in self.transcripts and late not in self.transcripts:
            self.transcripts[late] = self.transcripts.pop(early)
            self._began[late] = self._began.pop(early, monotonic())

    def arrived(self, transcript: Transcript) -> None:
        """Output came to a transcript; it is painted if it is the one on screen."""
        view = self.query_one(OutputView)
        if view.transcript is transcript:
            view.wake()

    def refresh_status(self) -> None:
        """Say what runs, since when, and what the view leaves out."""
        self.query_one("#run-status", Static).update(self._status(), layout=False)

    @on(Input.Submitted, "#line")
    def submitted(self, event: Input.Submitted) -> None:
        """Run the line, if there is one and nothing runs yet."""
        event.stop()
        line = event.value.strip()
        if not line or self.sandbox is None:
            return
        transcript = self.transcripts.setdefault(key_of(self.sandbox), Transcript())
        if transcript.is_running:
            self.notify("one command at a time here: ctrl+c stops the running one", severity="warning", markup=False)
            return
        prompt = self.query_one(LineInput)
        prompt.remember(line)
        prompt.value = ""
        transcript.begin(line)
        self._began[key_of(self.sandbox)] = monotonic()
        self.query_one(OutputView).show(transcript)
        self.post_message(self.Submitted(self.sandbox, line, transcript))
        self.refresh_status()

    def do_output_stop(self) -> None:
        """Copy what is selected, else end what runs."""
        if selected := self.screen.get_selected_text():
            self.main.copy(selected, "the selection")
        else:
            self.stop_asked()

    @on(LineInput.StopAsked)
    def stop_asked(self) -> None:
        """End what runs; where nothing does, empty the line."""
        transcript = self._transcript()
        if transcript is not None and transcript.is_running:
            self.post_message(self.StopAsked(transcript))
        else:
            self.query_one(LineInput).value = ""

    @on(OutputView.Changed)
    def output_changed(self) -> None:
        """Following, pausing or dropping changed the status."""
        self.refresh_status()

    @on(OutputView.CopyAsked)
    def copy_asked(self, message: OutputView.CopyAsked) -> None:
        """Copy from the output."""
        self.main.copy(message.text, message.what)

    def last_output(self) -> str:
        """What the last command printed; empty when there was none."""
        transcript = self._transcript()
        return transcript.text_of(transcript.blocks[-1]) if transcript is not None and transcript.blocks else ""

    def _transcript(self) -> Transcript | None:
        return self.transcripts.get(key_of(self.sandbox)) if self.sandbox else None

    def _status(self) -> str:
        if self.sandbox is None:
            return "no sandbox is selected"
        parts = [] if self._can_run() else [f"{shown_name(self.sandbox)} is {state_text(self.sandbox.state)}"]
        transcript = self._transcript()
        if transcript is None:
            return " · ".join([*parts, "nothing was run here yet"])
        if transcript.is_running:
            parts.append(f"running {monotonic() - self._began[key_of(self.sandbox)]:.0f}s · ctrl+c stops")
        view = self.query_one(OutputView)
        if not view.is_following:
            parts.append(f"PAUSED · {view.newer_lines:,} newer, G follows")
        if transcript.dropped:
            parts.append(f"dropped {transcript.dropped:,} oldest lines")
        return " · ".join(parts)

    def _can_run(self) -> bool:
        return self.sandbox is not None and self.sandbox.is_tracked and self.sandbox.state is SandboxState.RUNNING
