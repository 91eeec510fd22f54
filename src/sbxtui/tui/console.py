"""What the shell tab keeps of one sandbox: its lines, where its shell is, and what runs there. No widgets, no I/O."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic

from sbxtui.core.jobs import Job
from sbxtui.tui.feeding import Bunches, Pace
from sbxtui.tui.fullscreen import ScreenWatch, wants_terminal
from sbxtui.tui.linehistory import LineHistory
from sbxtui.tui.widgets.transcript import Transcript

_SHOWN_CWD = 24
_LAST_NEWS_S = 3.0


@dataclass(slots=True)
class Running:
    """The line that runs, whoever gave it. `job` is None until its guest told of it, and with an old guest.

    `stop` ends it where there is no job to signal. `cursor` is how far its log was shown. Once it was interrupted,
    `rest` takes what still comes, of which only the last is shown.
    """

    line_id: str
    line: str
    author: str = ""
    job: Job | None = None
    began: float = field(default_factory=monotonic)
    cursor: int = 0
    presses: int = 0
    screen: ScreenWatch = field(default_factory=ScreenWatch)
    pace: Pace = field(default_factory=Pace)
    stop: Callable[[], object] | None = None
    rest: Bunches[tuple[str, bytes]] | None = None
    left_out_bytes: int = 0

    def flush(self) -> None:
        """Show what came and was not shown yet."""
        if self.rest is not None:
            self.rest.flush()

    @property
    def has_terminal(self) -> bool:
        """Whether a terminal can be lent to it."""
        return self.job is not None and self.job.has_terminal

    @property
    def wants_terminal(self) -> bool:
        """Whether it draws a whole screen, or is known to."""
        return self.has_terminal and (self.screen.is_full_screen or wants_terminal(self.line))


@dataclass(slots=True)
class Console:
    """One sandbox's shell as this dashboard sees it. At most one line runs; ours that wait their turn are `waiting`.

    `seen` are the lines that were shown or are being shown; `cursors` how far those were that are to be gone on with.
    """

    transcript: Transcript = field(default_factory=Transcript)
    history: LineHistory = field(default_factory=LineHistory)
    is_history_loaded: bool = False
    cwd: str = ""
    hint: str = ""
    hinted_line: str = ""
    running: Running | None = None
    freed: asyncio.Event = field(default_factory=asyncio.Event)
    waiting: dict[str, str] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)
    cursors: dict[str, int] = field(default_factory=dict)

    @property
    def prompt(self) -> str:
        """Where the next line runs."""
        cwd = self.cwd if len(self.cwd) <= _SHOWN_CWD else "…" + self.cwd[1 - _SHOWN_CWD :]
        return f"{cwd} $ " if cwd else "$ "

    def begin(self, line_id: str, line: str, *, author: str = "") -> Running:
        """Open the block of a line; one that is open is closed, for a shell runs one line at a time."""
        if self.running is not None and self.transcript.is_running:
            self.transcript.finish("…", is_failure=False)
        self.waiting.pop(line_id, None)
        self.seen.add(line_id)
        said_by = f"{author} " if author else ""
        self.transcript.begin(line, prompt=f"{said_by}{self.prompt}")
        self.running = Running(line_id, line, author)
        self.freed.clear()
        return self.running

    async def take_turn(self, job: Job, line: str, *, author: str = "") -> Running:
        """The line of a job, once what ran before it was shown to its end: the news of that may come later."""
        running = self.running
        if running is None or running.line_id != job.id:
            if running is not None:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LAST_NEWS_S):
                        await self.freed.wait()
            running = self.begin(job.id, line, author=author)
        running.job = job
        return running

    def is_open(self, running: Running) -> bool:
        """Whether what comes now belongs to this line."""
        return self.running is running

    def finish(self, running: Running, words: str, *, is_failure: bool) -> None:
        """Close the block of a line, if it is still the open one."""
        if self.is_open(running):
            running.flush()
            self.transcript.finish(words, is_failure=is_failure)
            self.running = None
            self.freed.set()

    def park(self, running: Running, words: str) -> None:
        """Stop showing a line that goes on without us; it is gone on with from the byte where this ends."""
        self.seen.discard(running.line_id)
        self.cursors[running.line_id] = running.cursor
        self.finish(running, words, is_failure=True)
