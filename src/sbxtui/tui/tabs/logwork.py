"""The background work of the logs tab: a worker follows a sandbox's log and posts what came; none touches a widget."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from time import perf_counter

from textual import work
from textual.message import Message

from sbxtui.core.errors import SbxError
from sbxtui.core.logs import LogLine, LogQuery, LogSource
from sbxtui.core.model import Sandbox
from sbxtui.tui.feeding import Pace
from sbxtui.tui.fleet import key_of
from sbxtui.tui.tabs.watching import WatchingTab

# Of what was said before, so many lines are asked for.
TAIL_LINES = 2_000
_BATCH_LINES = 500
_BATCH_S = 0.05


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

    @work(exclusive=True, group="logs", exit_on_error=False)
    async def follow_lines(self, sandbox: Sandbox, source: LogSource, *, is_asked: bool) -> None:
        """Tell the lines of a sandbox for as long as it is selected."""
        key = key_of(sandbox)
        batch: list[LogLine] = []
        pace = Pace()
        query = LogQuery(source=source, tail=TAIL_LINES, is_following=True)
        try:
            row = await self.main.row_of(sandbox)
            logs = await asyncio.to_thread(lambda: self.services.logs)
            clouds = self.services.cloud_logs if source is not LogSource.GUEST else None
            lines = logs.lines(row, query, is_asked=is_asked) if clouds is None else clouds.lines(row, query)
            began = perf_counter()
            async with aclosing(lines):
                async for line in lines:
                    batch.append(line)
                    if len(batch) >= _BATCH_LINES or perf_counter() - began > _BATCH_S or len(batch) == 1:
                        self.post_message(LinesCame(key, source, batch))
                        batch = []
                        await pace.rest_after(began)
                        began = perf_counter()
            self.post_message(LinesCame(key, source, batch))
        except SbxError as exc:
            self.post_message(LinesCame(key, source, batch, exc))

    @work(group="save", exit_on_error=False)
    async def save_lines(self, path: str, lines: Sequence[str]) -> None:
        """Write lines into a new file."""
        try:
            await asyncio.to_thread(_write, Path(path).expanduser(), lines)
        except OSError as exc:
            self.post_message(Saved(path, 0, exc.strerror or str(exc)))
        else:
            self.post_message(Saved(path, len(lines)))


def _write(file: Path, lines: Sequence[str]) -> None:
    # Never over a file that is there.
    with file.open("x", encoding="utf-8", errors="replace") as out:
        out.writelines(f"{line}\n" for line in lines)
