"""The logs tab: what all commands of a sandbox say, live, and how to find a line in it."""

from __future__ import annotations

from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.widgets import Static

from sbxtui.core.errors import SbxError, UsageError
from sbxtui.core.logs import GUEST, LogSource, parse_grep
from sbxtui.core.model import Sandbox, SandboxState
from sbxtui.core.text import harmless_line
from sbxtui.tui.actions import SANDBOXES, Action
from sbxtui.tui.fleet import key_of
from sbxtui.tui.logbook import Logbook
from sbxtui.tui.screens.ask import AskScreen
from sbxtui.tui.screens.choose import ChooseScreen
from sbxtui.tui.tabs.logwork import LinesCame, LogWork, Saved
from sbxtui.tui.widgets.output import OutputView
from sbxtui.tui.words import shown_name, state_text

LOGS = "logs"
ACTIONS = (
    Action("logs_find", "slash", "find", "sbx logs NAME --grep RE", "Only lines with a text; none shows all.", 1, LOGS),
    Action("logs_job", "b", "job", "sbx logs NAME --job JOB", "Only one job's lines, or the guest's.", 3, LOGS),
    Action("logs_source", "s", "source", "sbx logs NAME --source S", "The guest's own, or CloudWatch's.", 4, LOGS),
    Action("logs_times", "t", "times", "", "With the time of each line, or without.", 5, LOGS),
    Action("logs_wrap", "w", "wrap", "", "Long lines over several, or cut.", 6, LOGS),
    Action("logs_save", "W", "save", "sbx logs NAME > FILE", "Writes the lines that are shown into a file.", 7, LOGS),
    Action("logs_clear", "C", "clear", "", "Forgets the lines here; they stay in the sandbox.", 8, LOGS),
)
_SOURCES = (
    (LogSource.GUEST.value, "what its commands say, as its guest keeps it"),
    (LogSource.CLOUDWATCH.value, "what the platform kept of the guest's own output"),
    (LogSource.BUILD.value, "the build of its image"),
)


class LogsTab(LogWork):
    """The log of the selected sandbox; it goes on to come in while other tabs are looked at."""

    SCOPES: ClassVar[tuple[str, ...]] = (LOGS, SANDBOXES)

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.book = Logbook()
        self.source = LogSource.GUEST
        self._followed = ""
        self._error: SbxError | None = None

    def compose(self) -> ComposeResult:
        yield OutputView((LOGS,), id="log-lines")
        yield Static("", id="log-status", markup=False)

    @property
    def view(self) -> OutputView:
        """Where the lines stand."""
        return self.query_one("#log-lines", OutputView)

    def first_inside(self) -> OutputView:
        """The lines."""
        return self.view

    def turned(self) -> None:
        """Another sandbox: another log."""
        self._followed = ""
        self._error = None
        self.end_watch()
        self.book = Logbook()
        self.view.show(self.book.transcript)
        self._say()

    def begin_watch(self, *, is_asked: bool) -> None:
        """Follow the selected sandbox's log, unless that is done already."""
        if self.sandbox is None or not self.is_watchable:
            return
        key = f"{key_of(self.sandbox)} {self.source.value}"
        if self._followed == key and self._error is None:
            return
        if self._error is not None and not is_asked and self.sandbox.state is not SandboxState.RUNNING:
            return
        self._followed, self._error = key, None
        self.follow_lines(self.sandbox, self.source, is_asked=is_asked)
        self._say()

    def on_hide(self) -> None:
        """It goes on: a log that is not said costs the sandbox nothing."""

    def tick(self) -> None:
        """The number of newer lines grows."""
        self._say()

    def on_resize(self, event: events.Resize) -> None:
        if self.book.look.width:
            self.book.look.width = max(20, self.view.size.width)
            self.view.show(self.book.redraw())

    @on(LinesCame)
    def came(self, message: LinesCame) -> None:
        """Show them."""
        if not self.is_about(message.key) or message.source is not self.source:
            return
        self.book.add(message.lines)
        self._tell_if_given_up()
        self._error = message.error
        self.view.wake()
        if message.error is not None:
            self._say()

    @on(Saved)
    def saved(self, message: Saved) -> None:
        """Say where they are."""
        if message.error:
            self.main.tell(f"could not write {message.path}: {message.error}", "warning")
        else:
            self.main.tell(f"wrote {message.count:,} lines to {message.path}")

    @on(OutputView.Changed)
    def view_changed(self) -> None:
        """Following or pausing changed."""
        self._say()

    @on(OutputView.CopyAsked)
    def copy_asked(self, message: OutputView.CopyAsked) -> None:
        """Copy from the lines."""
        self.main.copy(message.text, message.what)

    def do_logs_find(self) -> None:
        """Ask for a text."""

        def answered(text: str | None) -> None:
            if text is not None:
                self.book.look.pattern = parse_grep(text)
                self._redraw()

        pattern = self.book.look.pattern
        name = shown_name(self.sandbox) if self.sandbox else "NAME"
        self.app.push_screen(
            AskScreen(
                "Only lines in which is found",
                pattern.pattern if pattern else "",
                line=lambda text: f"sbx logs {name}" + f" --grep '{text}'" * bool(text),
                check=_mistake,
                hint="a text or regular expression; nothing shows all lines",
            ),
            answered,
        )

    def do_logs_job(self) -> None:
        """Ask whose lines."""

        def chosen(job: str | None) -> None:
            if job is not None:
                self.book.look.job = "" if job == "all" else job
                self._redraw()

        rows = [("all", "all", "every job's, and the guest's"), (GUEST, GUEST, "what the guest tells of itself")]
        rows += [(job, job[:8], "this job's") for job in self.book.jobs()[:20]]
        self.app.push_screen(ChooseScreen("Whose lines?", rows), chosen)

    def do_logs_source(self) -> None:
        """Ask where from."""

        def chosen(source: str | None) -> None:
            if source and LogSource(source) is not self.source:
                self.source = LogSource(source)
                self.turned()
                self.begin_watch(is_asked=True)

        rows = [(value, value, words) for value, words in _SOURCES]
        self.app.push_screen(ChooseScreen("Which log?", rows), chosen)

    def do_logs_times(self) -> None:
        """With times, or without."""
        self.book.look.has_times = not self.book.look.has_times
        self._redraw()

    def do_logs_wrap(self) -> None:
        """Over several lines, or cut."""
        self.book.look.width = 0 if self.book.look.width else max(20, self.view.size.width)
        self._redraw()

    def do_logs_save(self) -> None:
        """Ask where to."""

        def answered(path: str | None) -> None:
            if path:
                self.save_lines(path, self.book.wanted())

        name = shown_name(self.sandbox) if self.sandbox else "sandbox"
        title = "Write the lines that are shown to"
        self.app.push_screen(AskScreen(title, f"{name}.log", line=lambda path: f"sbx logs {name} > {path}"), answered)

    def do_logs_clear(self) -> None:
        """Forget what is here."""
        self.view.show(self.book.clear())
        self._say()

    def _redraw(self) -> None:
        self.view.show(self.book.redraw())
        self._tell_if_given_up()
        self._say()

    def _tell_if_given_up(self) -> None:
        """All lines are shown again where the pattern takes too long."""
        look = self.book.look
        if look.gave_up:
            self.main.tell(look.gave_up, "warning")
            look.gave_up = ""
            self.view.show(self.book.redraw())

    def keys_moved(self) -> None:
        """The line below says keys."""
        self._say()

    def _say(self) -> None:
        self.say("#log-status", harmless_line(self.words_of(self.sandbox, self._status)))

    def _status(self, sandbox: Sandbox) -> str:
        if self._error is not None:
            return f"{self._error.message}" + f" · {self._error.hint}" * bool(self._error.hint)
        if not self.book.count:
            if sandbox.state is not SandboxState.RUNNING:
                return f"{shown_name(sandbox)} is {state_text(sandbox.state)}; its log goes on when it runs"
            return f"nothing was said in {shown_name(sandbox)} yet"
        look, parts = self.book.look, ["following" if self.view.is_following else self._paused_words()]
        parts += [f"/{look.pattern.pattern}"] if look.pattern else []
        parts += [f"job {look.job[:8]}"] if look.job else []
        parts += [self.source.value] if self.source is not LogSource.GUEST else []
        parts.append(f"kept {min(self.book.count, self.book.count - self.book.dropped):,}")
        parts += [f"dropped {self.book.dropped:,}"] if self.book.dropped else []
        return " · ".join(parts)

    def _paused_words(self) -> str:
        return f"PAUSED · {self.view.newer_lines:,} newer, G follows"


def _mistake(text: str) -> str:
    try:
        parse_grep(text)
    except UsageError as exc:
        return exc.message
    return ""
