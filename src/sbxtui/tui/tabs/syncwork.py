"""The background work of the sync tab: workers call the sync desk and post messages; none touches a widget."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING

from textual.message import Message

from sbxtui.core.errors import SbxError
from sbxtui.core.model import Registration, Sandbox
from sbxtui.core.text import counted, harmless_line, short_size
from sbxtui.tui.fleet import key_of
from sbxtui.tui.messages import Progress
from sbxtui.tui.preview import MAX_BYTES, Preview, preview_of
from sbxtui.tui.tabs.watching import WatchingTab
from sbxtui.tui.working import worker

if TYPE_CHECKING:
    from sbxtui.services.sync.desk import Decided, Found, Item, SyncDesk, Undoable
    from sbxtui.services.sync.views import SyncView


class SyncSeen(Message):
    """How the sync of a sandbox is; None: it has none. `key` is the sandbox's."""

    def __init__(self, key: str, view: SyncView | None, error: SbxError | None = None) -> None:
        super().__init__()
        self.key = key
        self.view = view
        self.error = error


class LookedAt(Message):
    """Both sides were looked at, or could not be."""

    def __init__(self, key: str, found: Found | None, error: SbxError | None = None) -> None:
        super().__init__()
        self.key = key
        self.found = found
        self.error = error


class Patched(Message):
    """What taking a path over would change, or why that is not known."""

    def __init__(self, key: str, item: Item, preview: Preview | None, error: SbxError | None = None) -> None:
        super().__init__()
        self.key = key
        self.item = item
        self.preview = preview
        self.error = error


class UndoFound(Message):
    """What can be taken back."""

    def __init__(self, key: str, choices: Sequence[Undoable]) -> None:
        super().__init__()
        self.key = key
        self.choices = choices


class SyncDone(Message):
    """Something was done to a sync, or not; `is_decision`: both sides differ from what was seen now."""

    def __init__(
        self, key: str, doing: str, words: str, *, is_decision: bool = False, error: SbxError | None = None
    ) -> None:
        super().__init__()
        self.key = key
        self.doing = doing
        self.words = words
        self.is_decision = is_decision
        self.error = error


Act = Callable[["SyncDesk", Registration], Awaitable[str]]


class SyncWork(WatchingTab):
    """A tab that can work on a sandbox's sync."""

    WATCH_GROUP = "sync"

    @worker(exclusive=True, group="sync")
    async def watch_sync(self, sandbox: Sandbox) -> None:
        """Tell how the sync is for as long as it is looked at."""
        key = key_of(sandbox)
        try:
            desk, row = await self._at(sandbox)
            async with aclosing(desk.follow(row)) as views:
                async for view in views:
                    self.post_message(SyncSeen(key, view))
        except SbxError as exc:
            self.post_message(SyncSeen(key, None, exc))

    @worker(exclusive=True, group="look")
    async def look_at(self, sandbox: Sandbox) -> None:
        """Look at both sides."""
        try:
            desk, row = await self._at(sandbox)
            found = await desk.look(row)
        except SbxError as exc:
            self.post_message(LookedAt(key_of(sandbox), None, exc))
            return
        self.post_message(LookedAt(key_of(sandbox), found))

    @worker(exclusive=True, group="patch")
    async def show_patch(self, sandbox: Sandbox, item: Item) -> None:
        """Fetch what taking a path over would change."""
        style = self.main.highlighting()
        try:
            desk, row = await self._at(sandbox)
            lines = await desk.patch(row, item)
        except SbxError as exc:
            self.post_message(Patched(key_of(sandbox), item, None, exc))
            return
        self.post_message(Patched(key_of(sandbox), item, await asyncio.to_thread(_preview, item, lines, style)))

    @worker(exclusive=True, group="undoable")
    async def find_undoable(self, sandbox: Sandbox) -> None:
        """Look what can be taken back."""
        try:
            desk, row = await self._at(sandbox)
            found = await desk.undoable(row)
        except SbxError as exc:
            self.post_message(SyncDone(key_of(sandbox), "sync undo", "", error=exc))
            return
        self.post_message(UndoFound(key_of(sandbox), found))

    def start_sync(self, sandbox: Sandbox, folder: str, mode: str) -> None:
        """Sync a folder of this machine."""

        async def act(desk: SyncDesk, row: Registration) -> str:
            from sbxtui.services.sync.model import Mode

            await desk.start(row, folder, Mode(mode))
            return f"{row.name} is synced with {folder}"

        self._act(sandbox, "sync", act)

    def pause_sync(self, sandbox: Sandbox) -> None:
        """Carry nothing over for now."""

        async def act(desk: SyncDesk, row: Registration) -> str:
            await desk.pause(row)
            return f"the sync of {row.name} is paused"

        self._act(sandbox, "sync pause", act)

    def resume_sync(self, sandbox: Sandbox, *, accepts_deletes: bool = False, accepts_large: bool = False) -> None:
        """Go on."""

        async def act(desk: SyncDesk, row: Registration) -> str:
            await desk.resume(row, accepts_deletes=accepts_deletes, accepts_large=accepts_large)
            return f"the sync of {row.name} goes on"

        self._act(sandbox, "sync resume", act)

    def stop_sync(self, sandbox: Sandbox) -> None:
        """End it."""

        async def act(desk: SyncDesk, row: Registration) -> str:
            await desk.stop(row)
            return f"{row.name} is synced no more; no file was touched"

        self._act(sandbox, "sync stop", act)

    def take_over(self, sandbox: Sandbox, found: Found, items: Sequence[Item], *, accepts_deletes: bool) -> None:
        """Take the sandbox's version of some paths."""

        async def act(desk: SyncDesk, row: Registration) -> str:
            return _words(await desk.accept(row, found, items, accepts_deletes=accepts_deletes), "taken over")

        self._act(sandbox, "sync pull", act, is_decision=True)

    def give_back(self, sandbox: Sandbox, items: Sequence[Item]) -> None:
        """Give the sandbox this machine's version of some paths."""

        async def act(desk: SyncDesk, row: Registration) -> str:
            return _words(await desk.reject(row, items), "given back")

        self._act(sandbox, "sync resolve", act, is_decision=True)

    def keep_both(self, sandbox: Sandbox, item: Item) -> None:
        """Keep both versions of a conflict, beside each other."""

        async def act(desk: SyncDesk, row: Registration) -> str:
            return _words(await desk.keep_both(row, item), "kept in both versions")

        self._act(sandbox, "sync resolve", act, is_decision=True)

    def merge(self, sandbox: Sandbox, item: Item) -> None:
        """Give both sides a text with the changes of both."""

        async def act(desk: SyncDesk, row: Registration) -> str:
            return _words(await desk.merge(row, item), "merged")

        self._act(sandbox, "sync resolve", act, is_decision=True)

    def take_back(self, sandbox: Sandbox, what: Undoable) -> None:
        """Undo what was done last."""

        async def act(desk: SyncDesk, row: Registration) -> str:
            return _words(await desk.undo(row, what), "taken back")

        self._act(sandbox, "sync undo", act, is_decision=True)

    @worker(group="change")
    async def _act(self, sandbox: Sandbox, doing: str, act: Act, *, is_decision: bool = False) -> None:
        key = key_of(sandbox)
        self.main.post_message(Progress(doing, f"{doing} {sandbox.name}"))
        try:
            desk, row = await self._at(sandbox)
            self.post_message(SyncDone(key, doing, await act(desk, row), is_decision=is_decision))
        except SbxError as exc:
            self.post_message(SyncDone(key, doing, "", is_decision=is_decision, error=exc))

    async def _at(self, sandbox: Sandbox) -> tuple[SyncDesk, Registration]:
        # What it needs is loaded only now.
        desk = await asyncio.to_thread(lambda: self.services.sync_desk)
        return desk, await self.main.row_of(sandbox)


def _words(decided: Decided, done: str) -> str:
    words = f"{counted(decided.done, 'path')} {done}"
    if decided.failed:
        path, code = decided.failed[0]
        words += f"; {len(decided.failed)} left as they are: {harmless_line(path, limit=60)}, {code.replace('_', ' ')}"
    return words


def _preview(item: Item, lines: Sequence[str], style: str) -> Preview:
    data = "\n".join(lines).encode("utf-8", "surrogateescape")
    path = harmless_line(item.path.decode("utf-8", "replace"), limit=4096)
    cut = f", only the first {short_size(MAX_BYTES)} are shown" if len(data) > MAX_BYTES else ""
    words = f"{item.word}, {counted(len(lines), 'line')}{cut}"
    return replace(preview_of("a.diff", data[:MAX_BYTES], len(data), style), path=path, words=words)
