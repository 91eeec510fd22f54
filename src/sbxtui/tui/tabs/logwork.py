"""The background work of the logs tab: a worker follows a sandbox's log and posts what came; none touches a widget."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from time import perf_counter

from textual.message import Message

from sbxtui.core.errors import SbxError
from sbxtui.core.logs import LogLine, LogQuery, LogSource
from sbxtui.core.model import Sandbox
from sbxtui.core.paths import at_home
from sbxtui.tui.feeding import Bunches, Pace
from sbxtui.tui.fleet import key_of
from sbxtui.tui.tabs.watching import WatchingTab
from sbxtui.tui.working import worker

# Of what was said before, so many lines are asked for.
TAIL_LINES = 2_000


class LinesCame(Message):
    """Lines of a sandbox's log, or why there are no more. `key` is the sandbox's."""

    def __init__(self, key: str, source: LogSource, lines: Sequence[LogLine], error: SbxError | None = None) -> None:
        super().__init__()
        self.key = key
        self.source = source
        self.lines = lines
        self.error = error


class Saved(Message):
    """Lines were written into a file, or not."""

    def __init__(self, path: str, count: int, error: str = "") -> None:
        super().__init__()
        self.path = path
        self.count = count
        self.error = error


class LogWork(WatchingTab):
    """A tab that can follow a sandbox's log."""

    WATCH_GROUP = "logs"

    @worker(exclusive=True, group="logs")
    async def follow_lines(self, sandbox: Sandbox, source: LogSource, *, is_asked: bool) -> None:
        """Tell the lines of a sandbox for as long as it is selected."""
        key = key_of(sandbox)
        bunches = Bunches[LogLine](lambda lines: self.post_message(LinesCame(key, source, lines)))
        pace = Pace()
        query = LogQuery(source=source, tail=TAIL_LINES, is_following=True)
        try:
            row = await self.main.row_of(sandbox)
            logs = await asyncio.to_thread(lambda: self.services.logs)
            clouds = self.services.cloud_logs if source is not LogSource.GUEST else None
            lines = logs.lines(row, query, is_asked=is_asked) if clouds is None else clouds.lines(row, query)
            since = perf_counter()
            async with aclosing(lines):
                async for line in lines:
                    bunches.add(line)
                    since = await pace.rest_after_step(since)
            bunches.flush()
        except SbxError as exc:
            bunches.flush()
            self.post_message(LinesCame(key, source, (), exc))

    @worker(group="save")
    async def save_lines(self, path: str, lines: Sequence[str]) -> None:
        """Write lines into a new file."""
        try:
            await asyncio.to_thread(_write, at_home(path), lines)
        except OSError as exc:
            self.post_message(Saved(path, 0, exc.strerror or str(exc)))
        else:
            self.post_message(Saved(path, len(lines)))


def _write(file: Path, lines: Sequence[str]) -> None:
    # Never over a file that is there.
    with file.open("x", encoding="utf-8", errors="replace") as out:
        out.writelines(f"{line}\n" for line in lines)
