"""The shell tab: lines run in a sandbox's shared shell, which keeps folder and variables, whoever gives it lines."""

from __future__ import annotations

from time import monotonic
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.widget import Widget
from textual.widgets import Input, Static

from sbxtui.core.jobs import TerminalSize
from sbxtui.core.model import Sandbox, SandboxState
from sbxtui.core.text import counted, harmless_line
from sbxtui.tui.actions import SANDBOXES
from sbxtui.tui.completing import completed, word_at
from sbxtui.tui.console import Console, Running
from sbxtui.tui.fleet import early_key_of, key_of
from sbxtui.tui.screens.confirm import ConfirmScreen
from sbxtui.tui.tabs.base import View
from sbxtui.tui.tabs.shellwork import Completed, Moved, ShellWork
from sbxtui.tui.widgets.lineinput import LINE_ACTIONS, LineInput
from sbxtui.tui.widgets.output import OUTPUT, OUTPUT_ACTIONS, OutputView
from sbxtui.tui.widgets.transcript import Transcript
from sbxtui.tui.words import shown_name, state_text

ACTIONS = (*LINE_ACTIONS, *OUTPUT_ACTIONS)
_FEWEST_COLS = 20


class ShellTab(ShellWork):
    """Output above, line below. Each sandbox has its own console, which goes on while another one is shown."""

    SCOPES: ClassVar[tuple[str, ...]] = (OUTPUT, SANDBOXES)

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.consoles: dict[str, Console] = {}

    def compose(self) -> ComposeResult:
        yield OutputView(id="output")
        yield Static(id="shell-status", markup=False)
        with Horizontal(id="shell-line"):
            yield Static("$ ", id="shell-prompt", markup=False)
            yield LineInput(id="line")

    def first_inside(self) -> LineInput:
        """The line."""
        return self.query_one(LineInput)

    def stops(self) -> list[Widget]:
        """The line, then the output."""
        return [self.query_one(LineInput), self.query_one(OutputView)]

    # Which sandbox.

    def show(self, view: View) -> None:
        """Show the console of the sandbox under the cursor; one that stopped is not followed into its sleep."""
        super().show(view)
        self.query_one(LineInput).disabled = self.sandbox is None or self.is_read_only
        self._park_sleepers(view)
        self.refresh_status()

    def turned(self) -> None:
        """What was run there stands where it was left."""
        self._keep_early_console()
        console = self._current()
        self.query_one(OutputView).show(console.transcript if console else Transcript())
        if console is not None:
            self.query_one(LineInput).use(console.history)

    def opened(self) -> None:
        """Another store may be open now: its sandboxes are others."""
        self.consoles.clear()
        super().opened()

    def tick(self) -> None:
        """What runs runs longer."""
        console = self._current()
        if console is not None and console.running is not None:
            self.refresh_status()

    def busy_words(self) -> list[str]:
        """What leaving would end: lines of old guests, which keep none."""
        alone = [one for one in self.consoles.values() if one.running is not None and one.running.stop is not None]
        return [counted(len(alone), "running command")] * bool(alone)

    def begin_watch(self, *, is_asked: bool) -> None:
        """Show the lines that others give this shell."""
        sandbox = self.sandbox
        is_awake = sandbox is not None and sandbox.state is SandboxState.RUNNING and not sandbox.has_old_guest
        if sandbox is None or not (is_awake and self.is_watchable):
            self.end_watch()
            return
        console = self._made_console(sandbox)
        self.watch_lines(sandbox, console, is_asked=is_asked or bool(console.cursors))

    def _park_sleepers(self, view: View) -> None:
        """A line of a sandbox that was suspended stops with it: asking on for it would wake the sandbox."""
        for key in [key for key, console in self.consoles.items() if console.running is not None]:
            sandbox = view.fleet.find(key)
            if sandbox is None or sandbox.state is not SandboxState.SUSPENDED:
                continue
            for worker in list(self.workers):
                if worker.group == "line" and worker.name == key:
                    worker.cancel()

    def _current(self) -> Console | None:
        return self.consoles.get(key_of(self.sandbox)) if self.sandbox is not None else None

    def _made_console(self, sandbox: Sandbox) -> Console:
        key = key_of(sandbox)
        if key not in self.consoles:
            console = self.consoles[key] = Console()
            self.query_one(OutputView).show(console.transcript)
            self.query_one(LineInput).use(console.history)
        console = self.consoles[key]
        if not console.is_history_loaded and sandbox.id:
            console.is_history_loaded = True
            self.load_history(sandbox, console)
        return console

    def _keep_early_console(self) -> None:
        """What was run in a sandbox before it had its id stays with it."""
        if self.sandbox is None or not self.sandbox.id or not self.sandbox.name:
            return
        early, late = early_key_of(self.sandbox), key_of(self.sandbox)
        if early in self.consoles and late not in self.consoles:
            self.consoles[late] = self.consoles.pop(early)

    # What workers tell.

    @on(Moved)
    def moved(self, message: Moved) -> None:
        """Paint what came, if it is the console on screen."""
        if message.error is not None:
            self.main.failed("shell", message.error)
        view = self.query_one(OutputView)
        if view.transcript is message.console.transcript:
            view.wake()
            self.refresh_status()

    @on(Completed)
    def completed(self, message: Completed) -> None:
        """Write the completed word, unless the line is another one by now."""
        line = self.query_one(LineInput)
        console = self._current()
        if message.console is not console or (line.value, line.cursor_position) != (message.line, message.cursor):
            return
        word = word_at(message.line, message.cursor)
        text, cursor, console.hint = completed(message.line, message.cursor, word, message.found)
        console.hinted_line = text
        line.put(text, cursor)
        self.refresh_status()

    @on(OutputView.Changed)
    def output_changed(self) -> None:
        """Following, pausing or dropping changed the status."""
        self.refresh_status()

    @on(OutputView.CopyAsked)
    def copy_asked(self, message: OutputView.CopyAsked) -> None:
        """Copy from the output."""
        self.main.copy(message.text, message.what)

    # What the person does.

    @on(Input.Changed, "#line")
    def typed(self, event: Input.Changed) -> None:
        """What was said about the line before is over."""
        if (console := self._current()) is not None and console.hint and event.value != console.hinted_line:
            console.hint = ""
            self.refresh_status()

    @on(Input.Submitted, "#line")
    def submitted(self, event: Input.Submitted) -> None:
        """Run the line; an empty one accepts that the whole terminal is lent to what asks for it."""
        event.stop()
        line, console = event.value.strip(), self._current()
        if line:
            self._run(line)
        elif console is not None and console.running is not None and console.running.wants_terminal:
            self._lend(console)

    @on(LineInput.Pasted)
    def pasted(self, message: LineInput.Pasted) -> None:
        """Ask before several lines run at once."""
        lines = message.text.splitlines()

        def answered(is_yes: bool | None) -> None:
            if is_yes:
                self._run(message.text)

        loss = "They run at once, one after the other, in one go."
        self.app.push_screen(ConfirmScreen(f"Run {len(lines)} pasted lines?", lines[:3], loss, "run"), answered)

    @on(LineInput.Asked)
    def asked(self, message: LineInput.Asked) -> None:
        """A key of the line."""
        match message.what:
            case "stop":
                self._stop()
            case "lend" if (console := self._current()) is not None:
                self._lend(console)
            case "complete" if self.query_one(LineInput).value:
                self._complete()
            case "complete":
                self.main.do_next_pane()

    def do_output_stop(self) -> None:
        """Copy what is selected, else interrupt what runs."""
        if selected := self.screen.get_selected_text():
            self.main.copy(selected, "the selection")
        else:
            self._stop()

    def last_output(self) -> str:
        """What the last line printed; empty when there was none."""
        console = self._current()
        transcript = console.transcript if console is not None else Transcript()
        return transcript.text_of(transcript.blocks[-1]) if transcript.blocks else ""

    def _run(self, line: str) -> None:
        sandbox = self.sandbox
        if sandbox is None:
            return
        console = self._made_console(sandbox)
        if sandbox.has_old_guest and console.running is not None:
            self.notify("one command at a time here: ctrl+c stops the running one", severity="warning", markup=False)
            return
        prompt = self.query_one(LineInput)
        prompt.value = ""
        if console.history.remember(line) and sandbox.id:
            self.keep_line(sandbox, line)
        self.query_one(OutputView).do_output_follow()
        if sandbox.has_old_guest:
            running = console.begin("", line)
            running.stop = self.run_alone(sandbox, console, running).cancel
        else:
            self._queue(sandbox, console, line)
        self.refresh_status()

    def _queue(self, sandbox: Sandbox, console: Console, line: str) -> None:
        """Give the line to the shell; it is shown at once if nothing is known to run before it."""
        from sbxtui.services.shell import new_job_id

        line_id = new_job_id()
        console.seen.add(line_id)
        if console.running is None:
            console.begin(line_id, line)
        else:
            console.waiting[line_id] = line
        view = self.query_one(OutputView)
        size = TerminalSize(max(_FEWEST_COLS, view.size.width - 2), max(5, view.size.height))
        self.run_line(sandbox, console, line_id, line, size).name = key_of(sandbox)

    def _stop(self) -> None:
        """Interrupt what runs; take back what waits; else empty the line."""
        console, sandbox = self._current(), self.sandbox
        if console is None or sandbox is None or (console.running is None and not console.waiting):
            self.query_one(LineInput).value = ""
        elif console.running is not None:
            self.interrupt(console, console.running)
            self.refresh_status()
        else:
            self.take_back(sandbox, console, next(reversed(console.waiting)))

    def _lend(self, console: Console) -> None:
        """Lend the whole terminal to what runs."""
        running = console.running
        if running is None or running.job is None or not running.has_terminal:
            self.main.tell("nothing that runs here has a terminal to be lent yours", "warning")
            return
        self.main.lend(["attach", running.job.sandbox, running.job.id])

    def _complete(self) -> None:
        sandbox, line = self.sandbox, self.query_one(LineInput)
        if sandbox is None:
            return
        console = self._made_console(sandbox)
        if sandbox.has_old_guest:
            console.hint = "its old guest completes nothing"
        else:
            word = word_at(line.value, line.cursor_position)
            self.complete(sandbox, console, line.value, line.cursor_position, word.text, is_command=word.is_command)
        self.refresh_status()

    # Drawing.

    def refresh_status(self) -> None:
        """Say where the shell is, what runs, since when, and what the view leaves out."""
        console = self._current()
        prompt = self.query_one("#shell-prompt", Static)
        if (words := harmless_line(console.prompt) + " " if console is not None else "$ ") != str(prompt.content):
            prompt.update(words)
        self.say("#shell-status", harmless_line(self._status(console)))
        self.query_one("#shell-status").set_class(self._is_offering(console), "-offer")

    def _is_offering(self, console: Console | None) -> bool:
        return console is not None and console.running is not None and console.running.wants_terminal

    def _status(self, console: Console | None) -> str:
        sandbox = self.sandbox
        if sandbox is None:
            return "no sandbox is selected"
        is_awake = sandbox.is_tracked and sandbox.state is SandboxState.RUNNING
        parts = [] if is_awake else [f"{shown_name(sandbox)} is {state_text(sandbox.state)}"]
        if console is None:
            return " · ".join([*parts, "nothing was run here yet"])
        if console.hint:
            return console.hint
        if console.running is not None:
            parts.append(_running_words(console.running))
        elif not (console.transcript.blocks or console.transcript.dropped):
            parts.append("nothing was run here yet")
        if console.waiting:
            parts.append(f"{len(console.waiting)} wait{'s' * (len(console.waiting) == 1)}")
        view = self.query_one(OutputView)
        if not view.is_following:
            parts.append(f"PAUSED · {view.newer_lines:,} newer, G follows")
        if console.transcript.dropped:
            parts.append(f"dropped {console.transcript.dropped:,} oldest lines")
        return " · ".join(parts)


def _running_words(running: Running) -> str:
    if running.wants_terminal:
        return "it wants a terminal: enter lends yours, ctrl+] comes back · ctrl+c stops"
    is_pressed = running.presses and running.stop is None
    stop = "ctrl+c again kills it" if is_pressed else "ctrl+c stops"
    lend = " · ctrl+t lends it the terminal" if running.has_terminal else ""
    by = f" for {running.author}" if running.author else ""
    return f"running {monotonic() - running.began:.0f}s{by} · {stop}{lend}"
