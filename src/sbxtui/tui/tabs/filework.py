"""The background work of the files tab: workers call the files service and post messages; none touches a widget."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from time import monotonic

from textual.message import Message

from sbxtui.core.errors import SbxError
from sbxtui.core.model import FileInfo, Registration, Sandbox
from sbxtui.core.text import harmless_line, short_size
from sbxtui.tui.fleet import key_of
from sbxtui.tui.messages import Progress
from sbxtui.tui.preview import MAX_BYTES, NOTHING, Preview, preview_of
from sbxtui.tui.tabs.base import Tab
from sbxtui.tui.working import worker

# So seldom a transfer tells how far it is.
_TELL_EVERY_S = 0.25


class Listed(Message):
    """A folder was listed, or could not be. `key` is the sandbox's."""

    def __init__(
        self,
        key: str,
        folder: str,
        entries: Sequence[FileInfo] = (),
        *,
        is_truncated: bool = False,
        error: SbxError | None = None,
    ) -> None:
        super().__init__()
        self.key = key
        self.folder = folder
        self.entries = entries
        self.is_truncated = is_truncated
        self.error = error


class Looked(Message):
    """The start of a file came, or why not."""

    def __init__(self, key: str, path: str, preview: Preview, error: SbxError | None = None) -> None:
        super().__init__()
        self.key = key
        self.path = path
        self.preview = preview
        self.error = error


class Transferred(Message):
    """A change of files ended; `folder` of the sandbox looks different now."""

    def __init__(self, key: str, work: str, doing: str, words: str, folder: str, error: SbxError | None) -> None:
        super().__init__()
        self.key = key
        self.work = work
        self.doing = doing
        self.words = words
        self.folder = folder
        self.error = error


class FileWork(Tab):
    """A tab that can work on a sandbox's files."""

    _numbers = count(1)

    @worker(group="files")
    async def list_folders(self, sandbox: Sandbox, folders: Sequence[str]) -> None:
        """List folders, one after the other."""
        key = key_of(sandbox)
        for folder in folders:
            try:
                files = await asyncio.to_thread(lambda: self.services.files)
                row = await self.main.row_of(sandbox)
                entries, is_truncated = await files.list(row, folder)
            except SbxError as exc:
                self.post_message(Listed(key, folder, error=exc))
                continue
            self.post_message(Listed(key, folder, entries, is_truncated=is_truncated))

    @worker(exclusive=True, group="peek")
    async def look_into(self, sandbox: Sandbox, path: str) -> None:
        """Fetch the start of a file; however large it is, not more than that."""
        style = self.main.highlighting()
        try:
            files = await asyncio.to_thread(lambda: self.services.files)
            head, info = await files.peek(await self.main.row_of(sandbox), path, MAX_BYTES)
        except SbxError as exc:
            self.post_message(Looked(key_of(sandbox), path, NOTHING, exc))
            return
        preview = await asyncio.to_thread(preview_of, path, head, info.size_bytes, style)
        self.post_message(Looked(key_of(sandbox), path, preview))

    def download(self, sandbox: Sandbox, path: str, target: str) -> None:
        """Copy a file or folder to this machine."""

        async def act(row: Registration, on_bytes: Callable[[int], None]) -> str:
            report = await self.services.files.download(row, path, target, is_recursive=True, on_bytes=on_bytes)
            return _left_out(report.problems if report is not None else ())

        self._start("download", sandbox, path, "", act)

    def upload(self, sandbox: Sandbox, source: str, folder: str) -> None:
        """Copy a file or folder of this machine into a folder."""

        async def act(row: Registration, on_bytes: Callable[[int], None]) -> str:
            report = await self.services.files.upload(row, source, f"{folder}/", is_recursive=True, on_bytes=on_bytes)
            return _left_out(report.problems if report is not None else ())

        self._start("upload", sandbox, source, folder, act)

    def delete(self, sandbox: Sandbox, path: str, *, is_recursive: bool) -> None:
        """Delete a file or folder."""

        async def act(row: Registration, on_bytes: Callable[[int], None]) -> str:
            await self.services.files.remove(row, path, is_recursive=is_recursive)
            return ""

        self._start("delete", sandbox, path, _parent(path), act)

    def move(self, sandbox: Sandbox, path: str, target: str) -> None:
        """Move or rename."""

        async def act(row: Registration, on_bytes: Callable[[int], None]) -> str:
            await self.services.files.move(row, path, target)
            return ""

        self._start("move", sandbox, path, _parent(path), act)

    def make_folder(self, sandbox: Sandbox, path: str) -> None:
        """Make a folder and those above it."""

        async def act(row: Registration, on_bytes: Callable[[int], None]) -> str:
            await self.services.files.make_folder(row, path)
            return ""

        self._start("make folder", sandbox, path, _parent(path), act)

    def _start(
        self,
        doing: str,
        sandbox: Sandbox,
        path: str,
        folder: str,
        act: Callable[[Registration, Callable[[int], None]], Awaitable[str]],
    ) -> None:
        work = f"{doing}-{next(self._numbers)}"
        self.main.post_message(Progress(work, f"{doing} {harmless_line(path, limit=80)}"))
        self._transfer(work, f"{doing} {path}", sandbox, folder, act)

    @worker(group="transfer")
    async def _transfer(
        self,
        work: str,
        doing: str,
        sandbox: Sandbox,
        folder: str,
        act: Callable[[Registration, Callable[[int], None]], Awaitable[str]],
    ) -> None:
        key, words = key_of(sandbox), harmless_line(doing, limit=80)
        counter = _Counter(
            lambda size_bytes: self.main.post_message(Progress(work, f"{words} {short_size(size_bytes)}"))
        )
        try:
            await asyncio.to_thread(lambda: self.services.files)
            more = await act(await self.main.row_of(sandbox), counter.add)
        except SbxError as exc:
            self.post_message(Transferred(key, work, doing, f"{words} failed: {exc.message}", folder, exc))
            return
        size = f", {short_size(counter.total_bytes)}" if counter.total_bytes else ""
        self.post_message(Transferred(key, work, doing, f"{words} done{size}{more}", folder, None))


class _Counter:
    """Adds up bytes and tells now and then."""

    def __init__(self, tell: Callable[[int], object]) -> None:
        self._tell = tell
        self._told_at = monotonic()
        self.total_bytes = 0

    def add(self, size_bytes: int) -> None:
        self.total_bytes += size_bytes
        if monotonic() - self._told_at >= _TELL_EVERY_S:
            self._told_at = monotonic()
            self._tell(self.total_bytes)


def _left_out(problems: Sequence[object]) -> str:
    return f" · {len(problems)} left out: {harmless_line(str(problems[0]), limit=100)}" if problems else ""


def _parent(path: str) -> str:
    return path.rstrip("/").rpartition("/")[0] or "/"
