"""A sync in memory behind the shape of `SyncDesk`, for pilot tests of the dashboard; the real one has its own tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from sbxtui.core.errors import SbxError
from sbxtui.core.model import Registration
from sbxtui.services.sync.desk import Decided, Found, Item, Undoable
from sbxtui.services.sync.model import Mode
from sbxtui.services.sync.views import SyncView

PATCH = """diff --git a/src/app.py b/src/app.py
--- a/src/app.py
+++ b/src/app.py
@@ -1,3 +1,3 @@
 def main() -> int:
-    return 41
+    return 42
"""


def now() -> datetime:
    """The present instant."""
    return datetime.now(UTC)


def sync_view(state: str = "watching", **said: Any) -> SyncView:
    """How a sync is that runs for a while."""
    root = str(said.pop("root", "/home/you/app"))
    figures = {"entries": 214, "pushed": 214, "last_scan_age_s": 12.0, "lag_p50_s": 0.012, "lag_p95_s": 0.04}
    return SyncView(
        root=root,
        to="",
        mode="push",
        state=state,
        is_detached=True,
        is_paused=state == "paused",
        seen_at=now(),
        said={**figures, **said},
    )


ITEMS = (
    Item(b"notes.md", "conflict", "here file, 12 B · there file, 20 B"),
    Item(b"src/app.py", "edited", "(46 B)"),
    Item(b"package.json", "new", "(2 KiB)", may_run=True),
    Item(b"old.txt", "deleted"),
)


@dataclass
class FakeDesk:
    """What a sync is like, and what was done with it; `show` tells whoever watches."""

    view: SyncView | None = None
    found: Found = field(default_factory=lambda: Found(ITEMS))
    batches: tuple[Undoable, ...] = (Undoable(7, "pull", 0.0, ("src/app.py",), is_pushed=False),)
    error: SbxError | None = None
    done: list[str] = field(default_factory=list)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def show(self, view: SyncView | None) -> None:
        """Be another one from now on."""
        self.view = view
        self._changed.set()

    async def follow(self, row: Registration) -> AsyncGenerator[SyncView | None, None]:
        while True:
            self._changed.clear()
            yield self.view
            await self._changed.wait()

    async def start(self, row: Registration, folder: str, mode: Mode) -> None:
        self._do(f"start {row.name} {folder} {mode.value}")
        self.show(sync_view(root=folder))

    async def pause(self, row: Registration) -> None:
        self._do("pause")
        self.show(sync_view("paused"))

    async def resume(self, row: Registration, *, accepts_deletes: bool = False, accepts_large: bool = False) -> None:
        self._do("resume" + " and delete" * accepts_deletes + " and send" * accepts_large)
        self.show(sync_view())

    async def stop(self, row: Registration) -> None:
        self._do("stop")
        self.show(None)

    async def look(self, row: Registration) -> Found:
        self._do("look")
        return self.found

    async def patch(self, row: Registration, item: Item) -> list[str]:
        self._do(f"patch {item.path.decode()}")
        return PATCH.splitlines()

    async def accept(
        self, row: Registration, found: Found, items: Sequence[Item], *, accepts_deletes: bool = False
    ) -> Decided:
        return self._decide("accept" + " with deletes" * accepts_deletes, items)

    async def reject(self, row: Registration, items: Sequence[Item]) -> Decided:
        return self._decide("reject", items)

    async def keep_both(self, row: Registration, item: Item) -> Decided:
        return self._decide("keep both of", [item])

    async def merge(self, row: Registration, item: Item) -> Decided:
        return self._decide("merge", [item])

    async def undoable(self, row: Registration) -> tuple[Undoable, ...]:
        return self.batches

    async def undo(self, row: Registration, what: Undoable) -> Decided:
        self._do(f"undo {what.number}")
        return Decided(len(what.paths))

    def _decide(self, word: str, items: Sequence[Item]) -> Decided:
        self._do(f"{word} {' '.join(item.path.decode() for item in items)}")
        self.found = replace(self.found, items=tuple(one for one in self.found.items if one not in items))
        return Decided(len(items))

    def _do(self, what: str) -> None:
        self.done.append(what)
        if self.error is not None:
            raise self.error
