"""The jobs tab: every command of a sandbox, whoever began it; one is followed, signalled, attached to, removed."""

from __future__ import annotations

from typing import ClassVar

from rich.cells import cell_len
from textual import events, on
from textual.app import ComposeResult
from textual.containers import Container
from textual.widget import Widget
from textual.widgets import Static

from sbxtui.core.jobs import Job, JobState
from sbxtui.core.model import Sandbox, SandboxState
from sbxtui.core.text import harmless_line
from sbxtui.tui import clock
from sbxtui.tui.actions import SANDBOXES, Action
from sbxtui.tui.fleet import key_of
from sbxtui.tui.jobrows import SHORT_ID, count_text, details_of, head_text, job_row, ordered
from sbxtui.tui.screens.choose import ChooseScreen
from sbxtui.tui.screens.confirm import ConfirmScreen
from sbxtui.tui.tabs.jobwork import Done, JobWork, Said, Told
from sbxtui.tui.widgets.output import OutputView
from sbxtui.tui.widgets.rows import RowList
from sbxtui.tui.widgets.transcript import Transcript
from sbxtui.tui.words import shown_name, state_text

JOBS = "jobs"
ACTIONS = (
    Action("job_follow", "enter,right,l", "follow", "sbx output NAME JOB --follow", "What it says, live.", 1, JOBS),
    Action("job_signal", "k", "signal", "sbx kill NAME JOB -s SIG", "Asks which one.", 2, JOBS, changes=True),
    Action("job_attach", "a", "attach", "sbx attach NAME JOB", "Lends it the whole terminal.", 3, JOBS, changes=True),
    Action("job_remove", "d", "remove", "", "Ends it and forgets what it said; asks first.", 4, JOBS, changes=True),
    Action("job_copy", "y", "copy id", "", "Copies its id.", 5, JOBS),
    Action("job_details", "i", "details", "sbx jobs NAME --all --json", "All that is known of it.", 6, JOBS),
    Action("job_refresh", "r", "ask anew", "sbx jobs NAME --all", "Asks the sandbox itself.", 7, JOBS),
)
# What a signal does, for the person who chooses.
_SIGNALS = (
    ("INT", "as Ctrl-C does: most programs stop, and clean up first"),
    ("TERM", "asks it to end; it may clean up, or not listen"),
    ("KILL", "ends it and everything it started, at once"),
)
_LOSSES = {
    "INT": "It is interrupted: what it was doing may stay half done.",
    "TERM": "It is asked to end: what it was doing may stay half done.",
    "KILL": "It cannot clean up: what it has not written yet is lost, with everything it started.",
}


class JobsTab(JobWork):
    """One list per sandbox, kept while others are looked at; what a followed job says stands below it."""

    SCOPES: ClassVar[tuple[str, ...]] = (JOBS, SANDBOXES)

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.jobs: list[Job] = []
        self.followed: Job | None = None
        self._known: dict[str, list[Job]] = {}
        self._problem = ""
        self._is_told = False

    def compose(self) -> ComposeResult:
        yield Static("", id="jobs-head", markup=False)
        with Container(id="jobs-body"):
            yield RowList((JOBS, SANDBOXES), id="joblist")
            yield OutputView((JOBS,), id="job-output")
        yield Static("", id="jobs-status", markup=False)

    # Which sandbox.

    def turned(self) -> None:
        """What was noted here of its jobs is shown at once."""
        self._close_output()
        self.jobs, self._problem, self._is_told = [], "", False
        if self.sandbox is not None:
            self.jobs = self._known.get(key_of(self.sandbox), [])
        self.draw()

    def opened(self) -> None:
        """Another store may be open now."""
        self._known.clear()
        super().opened()

    def begin_watch(self, *, is_asked: bool) -> None:
        """Keep the list as it is now."""
        if self.sandbox is not None and self.is_watchable:
            self.watch_jobs(self.sandbox, is_asked=is_asked)
        else:
            self.end_watch()

    @property
    def selected(self) -> Job | None:
        """The job under the cursor."""
        row = self.query_one("#joblist", RowList).selected
        return next((job for job in self.jobs if row is not None and job.id == row.key), None)

    def first_inside(self) -> RowList | OutputView:
        """The list, or what stands in its place."""
        return self.query_one(OutputView) if self.has_class("-viewing") else self.query_one("#joblist", RowList)

    def stops(self) -> list[Widget]:
        """The list and the output below it; where only one is shown, that one."""
        both: list[Widget] = [self.query_one("#joblist", RowList), self.query_one(OutputView)]
        return both if self.has_class("-viewing") and self.has_class("-both") else [self.first_inside()]

    def title(self) -> str:
        """How many run and have ended."""
        return count_text(self.jobs) if self.jobs else ""

    def tick(self) -> None:
        """What runs gets older."""
        self.draw()

    def on_resize(self, event: events.Resize) -> None:
        self.set_class(event.size.height >= 18, "-both")
        self.draw()
        # A list that was not in sight beside the output has its width only then.
        self.call_after_refresh(self.draw)

    # What workers tell.

    @on(Told)
    def told(self, message: Told) -> None:
        """Show the jobs, or why they are not known."""
        if message.listing is not None:
            self._known[message.key] = ordered(message.listing.jobs)
        if not self.is_about(message.key):
            return
        self._is_told = True
        if message.listing is not None:
            self.jobs = self._known[message.key]
            self._problem = " · ".join(message.listing.problems)
        elif message.error is not None:
            self._problem = f"{message.error.message} ({message.error.hint or 'r asks anew'})"
        self.draw()

    @on(Said)
    def said(self, message: Said) -> None:
        """Paint what the followed job said."""
        view = self.query_one(OutputView)
        if view.transcript is message.transcript:
            view.wake()

    @on(Done)
    def done(self, message: Done) -> None:
        """Say what became of a signal or a removal."""
        if message.error is not None:
            self.main.failed(message.doing, message.error)
        else:
            self.main.tell(message.words)
        self.begin_watch(is_asked=True)

    @on(OutputView.Changed)
    def output_changed(self) -> None:
        """Following or pausing changed."""
        self._say()

    @on(OutputView.CopyAsked)
    def copy_asked(self, message: OutputView.CopyAsked) -> None:
        """Copy from the output."""
        self.main.copy(message.text, message.what)

    # What the person does.

    @on(RowList.Opened)
    def do_job_follow(self) -> None:
        """Show what the job says."""
        if (job := self.selected) is None:
            return
        self.followed = job
        view = self.query_one(OutputView)
        view.show(Transcript())
        self.follow_job(job, view.transcript)
        self.add_class("-viewing")
        self.call_after_refresh(self.screen.set_focus, view)
        self._say()

    def do_job_signal(self) -> None:
        """Ask which signal, then whether."""
        job = self._subject()
        if job is None or not self._is_live(job):
            return

        def chosen(signal: str | None) -> None:
            if signal:
                self._confirm_signal(job, signal)

        title = f"Signal job {job.id[:SHORT_ID]}: {job.command}"
        self.app.push_screen(ChooseScreen(title, [(name, name, words) for name, words in _SIGNALS]), chosen)

    def _confirm_signal(self, job: Job, signal: str) -> None:
        def answered(is_yes: bool | None) -> None:
            if is_yes:
                self.signal_job(job, signal)

        question = f"Send {signal} to job {job.id[:SHORT_ID]}?"
        self.app.push_screen(ConfirmScreen(question, [_named(job)], _LOSSES[signal], "send"), answered)

    def do_job_remove(self) -> None:
        """Ask, then end and forget it."""
        if (job := self._subject()) is None:
            return

        def answered(is_yes: bool | None) -> None:
            if is_yes:
                self.remove_job(job)

        ends = "" if job.is_over else "It ends with everything it started. "
        question = f"Remove job {job.id[:SHORT_ID]}?"
        loss = f"{ends}What it said is forgotten."
        self.app.push_screen(ConfirmScreen(question, [_named(job)], loss, "remove"), answered)

    def do_job_attach(self) -> None:
        """Give the whole terminal to the job."""
        job = self._subject()
        if job is None or not self._is_live(job):
            return
        if not job.has_terminal:
            self.main.tell("it has no terminal: enter follows what it says", "warning")
            return
        self.main.lend(["attach", job.sandbox, job.id])

    def do_job_details(self) -> None:
        """Show all that is known of it."""
        if (job := self._subject()) is not None:
            self.main.open_page("A job", details_of(job, clock.now()))

    def do_job_copy(self) -> None:
        """Copy the id."""
        if (job := self._subject()) is not None:
            self.main.copy(job.id, "the job's id")

    def do_job_refresh(self) -> None:
        """Ask the sandbox."""
        self.begin_watch(is_asked=True)

    def do_output_stop(self) -> None:
        """Copy what is selected, else signal what is followed."""
        if selected := self.screen.get_selected_text():
            self.main.copy(selected, "the selection")
        else:
            self.do_job_signal()

    def do_back(self) -> None:
        """From the output to the list; from there to where the screen goes."""
        if self.has_class("-viewing"):
            self._close_output()
            self.screen.set_focus(self.query_one("#joblist", RowList))
            self._say()
        else:
            self.main.do_back()

    def _subject(self) -> Job | None:
        """The job that is meant: the followed one while its output has the focus, as it is known now."""
        if self.followed is not None and self.query_one(OutputView).has_focus:
            return next((job for job in self.jobs if job.id == self.followed.id), self.followed)
        return self.selected

    def _is_live(self, job: Job) -> bool:
        if job.is_over:
            self.main.tell("it has ended", "warning")
        return not job.is_over

    def _close_output(self) -> None:
        self.remove_class("-viewing")
        self.followed = None
        self.workers.cancel_group(self, "follow")
        self.query_one(OutputView).show(Transcript())

    # Drawing.

    def keys_moved(self) -> None:
        """The line below says keys."""
        self._say()

    def draw(self) -> None:
        """Draw the list as it is now."""
        rows = self.query_one("#joblist", RowList)
        width, now = max(20, rows.size.width - 2), clock.now()
        authors = max((cell_len(harmless_line(job.actor)) for job in self.jobs), default=0)
        rows.show([job_row(job, now, width, authors) for job in self.jobs])
        self.say("#jobs-head", f"  {head_text(width, authors)}" if self.jobs else "")
        self._say()

    def _say(self) -> None:
        self.say("#jobs-status", harmless_line(self.words_of(self.sandbox, self._status)))

    def _status(self, sandbox: Sandbox) -> str:
        if self.followed is not None:
            return self._followed_words(self.followed)
        if self._problem:
            return self._problem
        if self.jobs:
            return f"{count_text(self.jobs)} in {shown_name(sandbox)}"
        if not self._is_told:
            return f"asking for the jobs of {shown_name(sandbox)} …"
        if sandbox.state is not SandboxState.RUNNING:
            return f"{shown_name(sandbox)} is {state_text(sandbox.state)}; no job of it is known here"
        keys = self.keys_to("job_refresh")
        return f"nothing was run in {shown_name(sandbox)} yet, as far as is known here · {keys} asks it"

    def _followed_words(self, job: Job) -> str:
        view = self.query_one(OutputView)
        now = next((one for one in self.jobs if one.id == job.id), job)
        parts = [f"job {job.id[:SHORT_ID]} by {job.actor or 'nobody known'}"]
        if now.state is JobState.RUNNING:
            parts.append("ctrl+c signals it")
        if not view.is_following:
            parts.append(f"PAUSED · {view.newer_lines:,} newer, G follows")
        if view.transcript.dropped:
            parts.append(f"dropped {view.transcript.dropped:,} oldest lines")
        return " · ".join([*parts, "esc closes it"])


def _named(job: Job) -> str:
    return f"{job.sandbox}: {job.command or job.id}"
