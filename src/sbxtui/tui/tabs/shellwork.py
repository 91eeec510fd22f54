"""The background work of the shell tab: lines of ours and of others, completing, where the shell is.

Workers call services, write into a console's transcript and post messages; none touches a widget.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from functools import partial
from time import perf_counter

from textual.message import Message

from sbxtui.core.errors import Conflict, NotFound, SandboxEnded, SandboxNotFound, SbxError
from sbxtui.core.jobs import Job, JobExit, JobGap, JobOutput, TerminalSize
from sbxtui.core.model import ExecResult, Registration, Sandbox
from sbxtui.core.shells import Completion
from sbxtui.core.text import harmless_line, short_size
from sbxtui.tui import linehistory
from sbxtui.tui.console import Console, Running
from sbxtui.tui.endings import result_words
from sbxtui.tui.feeding import Bunches, last_of
from sbxtui.tui.tabs.watching import WatchingTab
from sbxtui.tui.working import worker

# Of lines that ended before somebody looked, so many are shown, with so much of what each said last.
_PAST_LINES = 10
_PAST_BYTES = 16 * 1024
# Of what an interrupted line still says, so much is shown each time: a person waits for its end.
_REST_BYTES = 64 * 1024
_OVER = (SandboxEnded, SandboxNotFound, NotFound)


class Moved(Message):
    """Something changed in a console. Many of these are one. `error` is what failed, for `o`."""

    def __init__(self, console: Console, error: SbxError | None = None) -> None:
        super().__init__()
        self.console = console
        self.error = error

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, Moved) and message.console is self.console and message.error is None


class Completed(Message):
    """What the word before the cursor of a line may become."""

    def __init__(self, console: Console, line: str, cursor: int, found: Completion) -> None:
        super().__init__()
        self.console = console
        self.line = line
        self.cursor = cursor
        self.found = found


class ShellWork(WatchingTab):
    """A tab that can work in sandboxes' shared shells."""

    WATCH_GROUP = "lines"

    # Lines of ours.

    @worker(group="line")
    async def run_line(self, sandbox: Sandbox, console: Console, line_id: str, line: str, size: TerminalSize) -> None:
        """Give the shell a line and show it from its turn to its end. Cancelling leaves it to itself."""
        turn: asyncio.Future[Running] = asyncio.get_running_loop().create_future()
        taking: set[asyncio.Task[None]] = set()

        async def take(job: Job) -> None:
            turn.set_result(await console.take_turn(job, line))
            self._tell(console)

        async def said(channel: str, data: bytes) -> None:
            await self._show(console, await turn, channel, data)

        try:
            shells = await asyncio.to_thread(lambda: self.services.shells)
            async with shells.open(await self.main.row_of(sandbox)) as shell:
                end = await shell.run(
                    line,
                    job_id=line_id,
                    terminal=size,
                    on_output=said,
                    on_started=lambda job: taking.add(asyncio.ensure_future(take(job))),
                )
            console.cwd = end.cwd
            self._end(console, await turn, end.result, why="" if end.is_kept else end.why)
        except SbxError as exc:
            self._fail(console, _shown(console, line_id), line_id, exc)
        except asyncio.CancelledError:
            self._leave(console, _shown(console, line_id), line_id)
            raise
        finally:
            for task in taking:
                task.cancel()

    @worker(group="run")
    async def run_alone(self, sandbox: Sandbox, console: Console, running: Running) -> None:
        """Run a line where an old guest keeps no shell; cancelling ends it."""
        error: SbxError | None = None
        try:
            jobs = await asyncio.to_thread(lambda: self.services.jobs)
            from sbxtui.services.jobs import Command

            async def said(channel: str, data: bytes) -> None:
                await self._show(console, running, channel, data)

            row = await self.main.row_of(sandbox)
            result = await jobs.exec(row, Command(argv=running.line), on_output=said, ends_with_caller=True)
            self._end(console, running, result)
        except SbxError as exc:
            error = exc
            console.finish(running, _words(exc), is_failure=True)
        except asyncio.CancelledError:
            console.finish(running, "stopped by you", is_failure=True)
            raise
        finally:
            self._tell(console, error)

    # Lines of others.

    @worker(exclusive=True, group="lines")
    async def watch_lines(self, sandbox: Sandbox, console: Console, *, is_asked: bool) -> None:
        """Show what others run in the shell, and what of ours goes on from before, for as long as it is looked at."""
        try:
            watch = await asyncio.to_thread(lambda: self.services.job_watch)
            from sbxtui.services.shell import DEFAULT_NAME

            row = await self.main.row_of(sandbox)
            await self._look(row, console, is_asked=is_asked)
            async with aclosing(watch.follow(row, sandbox.state, is_asked=is_asked)) as listings:
                async for listing in listings:
                    lines = [job for job in listing.jobs if job.shell == DEFAULT_NAME and job.id not in console.seen]
                    await self._catch_up(row, console, lines)
        except SbxError as exc:
            console.hint = _words(exc)
        self._tell(console)

    async def _catch_up(self, row: Registration, console: Console, lines: Sequence[Job]) -> None:
        """Show lines one after the other, the last ones of those that ended."""
        ended = [job for job in lines if job.is_over and job.id not in console.cursors]
        console.seen.update(job.id for job in ended[:-_PAST_LINES])
        for job in lines:
            if job.id not in console.seen:
                await self._follow(console, job)
        if lines:
            await self._look(row, console, is_asked=True)

    async def _follow(self, console: Console, job: Job) -> None:
        """Show a line from where it was left, else its end or, while it runs, all of it."""
        is_known = job.id in console.cursors
        start = console.cursors.pop(job.id, max(0, job.cursor - _PAST_BYTES) if job.is_over else 0)
        running = await console.take_turn(job, job.command, author="" if is_known else job.actor)
        running.cursor = start
        if start:
            console.transcript.note(f"… goes on from byte {start:,}" if is_known else f"… {start:,} bytes before")
        self._tell(console)
        try:
            async with aclosing(self.services.jobs.follow(job, cursor=start)) as pieces:
                async for piece in pieces:
                    match piece:
                        case JobOutput():
                            await self._show(console, running, piece.channel.value, piece.data)
                        case JobGap() if console.is_open(running):
                            running.cursor = piece.end
                            console.transcript.note(f"… {piece.end - piece.start:,} bytes came too fast")
                        case JobExit():
                            self._end(console, running, piece.as_result())
        except SbxError as exc:
            self._fail(console, running, job.id, exc)
        except asyncio.CancelledError:
            self._leave(console, running, job.id)
            raise

    async def _look(self, row: Registration, console: Console, *, is_asked: bool) -> None:
        """Where the shell is now; asking is no wish of the person who only passes by."""
        if not is_asked:
            return
        async with self.services.shells.open(row) as shell:
            console.cwd = (await shell.look()).cwd or console.cwd
        self._tell(console)

    # What runs.

    def interrupt(self, console: Console, running: Running) -> None:
        """Ctrl-C: interrupts at first, kills when that was not enough."""
        running.presses += 1
        running.rest = running.rest or Bunches(partial(self._show_last, console, running))
        if running.stop is not None:
            running.stop()
        elif running.job is not None:
            signal = "INT" if running.presses == 1 else "KILL"
            self._act(console, partial(self.services.jobs.signal, running.job, signal))

    def take_back(self, sandbox: Sandbox, console: Console, line_id: str) -> None:
        """A line that waits never runs."""

        async def act() -> None:
            async with self.services.shells.open(await self.main.row_of(sandbox)) as shell:
                await shell.cancel(line_id)

        self._act(console, act)

    @worker(group="change")
    async def _act(self, console: Console, act: Callable[[], Awaitable[object]]) -> None:
        try:
            await act()
        except (Conflict, NotFound):
            # It ended by itself, or began: what is shown says so.
            self._tell(console)
        except SbxError as exc:
            self._tell(console, exc)

    # The line that is typed.

    @worker(exclusive=True, group="complete")
    async def complete(
        self, sandbox: Sandbox, console: Console, line: str, cursor: int, word: str, *, is_command: bool
    ) -> None:
        """Ask what a word may become."""
        try:
            shells = await asyncio.to_thread(lambda: self.services.shells)
            async with shells.open(await self.main.row_of(sandbox)) as shell:
                found = await shell.complete(word, is_command=is_command)
        except SbxError as exc:
            console.hint = _words(exc)
            self._tell(console)
            return
        self.post_message(Completed(console, line, cursor, found))

    @worker(group="history")
    async def load_history(self, sandbox: Sandbox, console: Console) -> None:
        """Take over the lines of dashboards before this one."""
        file = linehistory.history_file(self.main.settings.home, sandbox.id)
        console.history.add_before(await asyncio.to_thread(linehistory.load, file))

    @worker(group="history")
    async def keep_line(self, sandbox: Sandbox, line: str) -> None:
        """Keep a line for dashboards after this one."""
        file = linehistory.history_file(self.main.settings.home, sandbox.id)
        await asyncio.to_thread(linehistory.keep, file, line)

    # What is common.

    async def _show(self, console: Console, running: Running, channel: str, data: bytes) -> None:
        began = perf_counter()
        running.cursor += len(data)
        if running.rest is not None:
            running.rest.add((channel, data))
        else:
            self._print(console, running, channel, data)
        await running.pace.rest_after(began)

    def _show_last(self, console: Console, running: Running, pieces: Sequence[tuple[str, bytes]]) -> None:
        last, left_out_bytes = last_of(pieces, _REST_BYTES)
        running.left_out_bytes += left_out_bytes
        for channel, data in last:
            self._print(console, running, channel, data)

    def _print(self, console: Console, running: Running, channel: str, data: bytes) -> None:
        was_full_screen = running.screen.is_full_screen
        lines = running.screen.lines_of(data)
        if lines and console.is_open(running):
            console.transcript.feed(channel, lines)
        if lines or running.screen.is_full_screen is not was_full_screen:
            self._tell(console)

    def _end(self, console: Console, running: Running, result: ExecResult, *, why: str = "") -> None:
        running.flush()
        words = result_words(result, console.transcript.lines_with_rest)
        if running.left_out_bytes:
            words += f" · {short_size(running.left_out_bytes)} left out"
        kept = f" · the shell stays as it was: {why}" if why else ""
        console.finish(running, words + kept, is_failure=result.exit_code != 0)
        self._tell(console)

    def _fail(self, console: Console, running: Running | None, line_id: str, error: SbxError) -> None:
        console.waiting.pop(line_id, None)
        if running is None:
            console.hint = _words(error)
        elif running.job is None or isinstance(error, _OVER):
            console.finish(running, _words(error), is_failure=True)
        else:
            console.park(running, f"{_words(error)} · the line goes on")
        self._tell(console, error)

    def _leave(self, console: Console, running: Running | None, line_id: str) -> None:
        console.waiting.pop(line_id, None)
        if running is not None and console.is_open(running):
            console.park(running, "not followed any more; the line goes on")
        self._tell(console)

    def _tell(self, console: Console, error: SbxError | None = None) -> None:
        self.post_message(Moved(console, error))


def _shown(console: Console, line_id: str) -> Running | None:
    """The line, if it is the one that is shown now."""
    running = console.running
    return running if running is not None and running.line_id == line_id else None


def _words(error: SbxError) -> str:
    return harmless_line(f"sbx: {error.message}" + f" · {error.hint}" * bool(error.hint))
