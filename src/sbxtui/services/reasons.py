"""Why sandboxes ended and what was killed in them, written down once as facts and events whoever sees it first.

A listing carries no reasons. Of an ended sandbox the control plane is asked once, ever. What a local watchdog killed
stands in a file beside the sandbox's files, on this machine, so that nobody has to be asked at all.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sbxtui.core.errors import SandboxNotFound, SbxError
from sbxtui.core.kills import FILE_NAME, Kills
from sbxtui.core.model import Context, ContextKind, Registration, SandboxId, SandboxState
from sbxtui.home import Home
from sbxtui.store.registry import Registry

if TYPE_CHECKING:
    from sbxtui.control.api import ControlApi

log = logging.getLogger(__name__)

# Facts of a row: why its sandbox ended, and how many kills in it are events already.
ENDED = "ended"
KILLS_NOTED = "kills_noted"

_PLATFORM = "platform"
_WATCHDOG = "watchdog"
# The rest is asked at the next look.
_ASKED_AT_ONCE = 8
_FORGOTTEN = "no longer known to the control plane"


class Reasons:
    """What is known of ends and kills in the sandboxes of a home."""

    def __init__(self, home: Home, registry: Registry) -> None:
        self._home = home
        self._registry = registry

    def kills(self, context: Context, sandbox_id: SandboxId) -> Kills:
        """What was killed in a sandbox; nothing where that is not told on this machine. Reads one small file."""
        if context.kind is not ContextKind.LOCAL or not sandbox_id:
            return Kills()
        return _read(self._home.trees_dir / sandbox_id / FILE_NAME)

    async def note_kills(self, context: Context, rows: Sequence[Registration]) -> list[tuple[Registration, Kills]]:
        """Each row with what was killed in its sandbox, after what is new since the last look became events."""
        if context.kind is not ContextKind.LOCAL:
            return [(row, Kills()) for row in rows]
        return await asyncio.to_thread(lambda: [self._note_kills(context, row) for row in rows])

    async def note_ends(self, plane: ControlApi, ended: Sequence[Registration]) -> dict[str, Registration]:
        """Ask why sandboxes ended whose reason is not known yet.

        Args:
            plane: The control plane of their context.
            ended: Rows whose sandboxes are gone for all a listing says.

        Returns:
            Those that are known to have ended now, by name.
        """
        unknown = [row for row in ended if ENDED not in row.facts][:_ASKED_AT_ONCE]
        noted = await asyncio.gather(*(self._note_end(plane, row) for row in unknown))
        return {row.name: row for row in noted}

    async def _note_end(self, plane: ControlApi, row: Registration) -> Registration:
        try:
            record = await plane.get(row.id)
            if record.state is not SandboxState.TERMINATED:
                return row
            reason = record.state_reason or "no reason given"
        except SandboxNotFound:
            reason = _FORGOTTEN
        except SbxError as exc:
            log.info("why %s ended is not known: %s", row.name, exc.message)
            return row
        return await asyncio.to_thread(
            self._registry.note,
            row,
            {ENDED: reason},
            kind="sandbox.ended",
            notes=[{"reason": reason}],
            actor=_PLATFORM,
        )

    def _note_kills(self, context: Context, row: Registration) -> tuple[Registration, Kills]:
        noted = row.facts.get(KILLS_NOTED)
        kills = self.kills(context, row.id)
        new = kills.after(noted if isinstance(noted, int) else 0)
        if not new:
            return row, kills
        notes = [dataclasses.asdict(kill) for kill in new]
        facts = {KILLS_NOTED: kills.count}
        return self._registry.note(row, facts, kind="sandbox.killed", notes=notes, actor=_WATCHDOG), kills


def _read(file: Path) -> Kills:
    try:
        return Kills.from_json(file.read_bytes())
    except (OSError, ValueError):
        return Kills()
