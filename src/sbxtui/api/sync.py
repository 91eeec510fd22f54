"""A sandbox's folders, kept equal with this machine's."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sbxtui.api.opened import Opened

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sbxtui.services.sync.desk import Decided, Found, Item
    from sbxtui.services.sync.spec import SyncSpec
    from sbxtui.services.sync.views import SyncView

    Folder = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class SyncOutput:
    """What one comparison came to.

    Attributes:
        entries: Files, folders and links of this machine's folder.
        pushed, pulled: Changes made in the sandbox, and here.
        sent_bytes: Content that was sent.
        guest_changes: Paths only the sandbox changed; `sync_changes` names them.
        conflicts: Paths both sides changed: both are as they were.
        problems: Paths that are left alone, each with the word for why.
    """

    entries: int
    pushed: int
    pulled: int
    sent_bytes: int
    guest_changes: int
    conflicts: tuple[str, ...]
    problems: tuple[tuple[str, str], ...]

    @property
    def is_equal(self) -> bool:
        """Whether the sandbox has all that this machine's folder has."""
        return not (self.conflicts or self.problems)


class Synced(Opened):
    """A sandbox with a folder that is kept as one of this machine's is, or both ways."""

    async def sync(
        self,
        folder: Folder,
        *,
        to: str = "",
        mode: str = "push",
        on_conflict: str = "stop",
        accept_deletes: bool = False,
        accept_large: bool = False,
    ) -> SyncOutput:
        """Compare a folder with the sandbox's once, and carry over what differs; nothing anybody wrote is lost.

        Args:
            folder: Of this machine.
            to: Of the sandbox; empty for its work folder.
            mode: `push`, `two-way` or `mirror`.
            on_conflict: `stop`, `local`; two-way also `guest` or `merge`.
            accept_deletes: A mirror may delete what only the sandbox has at their first comparison.
            accept_large: The first comparison may send more than 2 GiB.

        Raises:
            UsageError: There is no such folder or word. Conflict: It is halted, or synced with another folder.
        """
        spec = await _spec(folder, to, mode, on_conflict, accept_deletes)
        syncs = self._services.syncs
        link = await asyncio.to_thread(syncs.take, self._row, spec)
        await self._accept(deletes=accept_deletes, large=accept_large)
        status = await syncs.once(self._row, link, lambda told: None)
        return SyncOutput(
            entries=status.entries,
            pushed=status.pushed,
            pulled=status.pulled,
            sent_bytes=status.sent_bytes,
            guest_changes=status.guest_changes,
            conflicts=tuple(os.fsdecode(path) for path in status.conflicts),
            problems=tuple((os.fsdecode(path), code) for path, code in sorted(status.problems.items())),
        )

    async def keep_synced(
        self,
        folder: Folder,
        *,
        to: str = "",
        mode: str = "push",
        on_conflict: str = "stop",
        accept_deletes: bool = False,
        accept_large: bool = False,
    ) -> None:
        """Carry each change over as it is saved, from now on and without this program; see `sync`.

        Raises:
            UsageError, Conflict: See `sync`. TimedOut: The runner does not act on it.
        """
        spec = await _spec(folder, to, mode, on_conflict, accept_deletes)
        await self._services.syncs.detach(self._row, spec)
        await self._accept(deletes=accept_deletes, large=accept_large)

    async def sync_status(self) -> SyncView | None:
        """How the sync is, with its figures in `said`; None while there is none. Sends nothing to the sandbox."""
        return await self._services.sync_desk.status(self._row)

    async def flush_sync(self) -> int:
        """Wait until all that was saved before this is in the sandbox, as `exec` does; returns how much that took.

        Raises:
            NotFound: There is no sync. Conflict: It is halted. Incomplete: Some of it cannot be there.
        """
        return await self._services.syncs.flush(self._row)

    async def pause_sync(self) -> None:
        """Carry nothing over for now."""
        await self._services.sync_desk.pause(self._row)

    async def resume_sync(self, *, accept_deletes: bool = False, accept_large: bool = False) -> None:
        """Go on; after a halt, compare anew and delete nothing."""
        desk = self._services.sync_desk
        await desk.resume(self._row, accepts_deletes=accept_deletes, accepts_large=accept_large)

    async def stop_sync(self) -> None:
        """End the sync and forget what both sides agreed on; no file is touched.

        Raises:
            NotFound: There is none.
        """
        await self._services.syncs.end(self._row)

    async def sync_changes(self) -> Found:
        """Look at both sides: what only the sandbox changed, and what both did, as `items` to decide on.

        Raises:
            NotFound: There is no sync.
        """
        return await self._services.sync_desk.look(self._row)

    async def sync_diff(self, item: Item) -> str:
        """What taking the sandbox's version would change here, as a patch."""
        return "".join(f"{line}\n" for line in await self._services.sync_desk.patch(self._row, item))

    async def pull(self, found: Found, items: Sequence[Item] | None = None, *, accept_deletes: bool = False) -> Decided:
        """Take the sandbox's version of what was seen; what it replaces can be had back with `undo_sync`.

        Args:
            found: What `sync_changes` said: what differs from that by now is left as it is.
            items: Of these; None for all that only the sandbox changed.
            accept_deletes: That the sandbox deleted much is no reason to stop.

        Raises:
            Conflict: A person has to look first.
        """
        wanted = [one for one in found.items if not one.is_conflict] if items is None else items
        return await self._services.sync_desk.accept(self._row, found, wanted, accepts_deletes=accept_deletes)

    async def reject(self, items: Sequence[Item]) -> Decided:
        """Give the sandbox this machine's version of these again."""
        return await self._services.sync_desk.reject(self._row, items)

    async def undo_sync(self) -> Decided | None:
        """Take back what the last `pull` or `reject` changed; None where there is nothing to take back."""
        desk = self._services.sync_desk
        for one in await desk.undoable(self._row):
            if not (one.is_pushed or one.is_left_over):
                return await desk.undo(self._row, one)
        return None

    async def _accept(self, *, deletes: bool, large: bool) -> None:
        if deletes:
            await self._services.syncs.accept_deletes(self._row)
        if large:
            await self._services.syncs.accept_large(self._row)


async def _spec(folder: Folder, to: str, mode: str, on_conflict: str, accepts_deletes: bool) -> SyncSpec:
    from sbxtui.services.sync.spec import SyncSpec

    words = (os.fspath(folder), to, mode, on_conflict)
    return await asyncio.to_thread(SyncSpec.asked, *words, accepts_deletes=accepts_deletes)
