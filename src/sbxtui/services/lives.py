"""How sandboxes live, written down by whoever sees it: changes of state for what they cost, and caps that come near."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime

from sbxtui.core.life import CAP, CAP_TOLD, LIVED, Lived, cap_warning, life_of
from sbxtui.core.model import Context, Registration, Sandbox
from sbxtui.core.threads import work_beside
from sbxtui.services.planes import ControlPlanes
from sbxtui.services.troubles import Troubles
from sbxtui.store.registry import Registry

_PLATFORM = "platform"
# A row, its facts and its events as they are to be written down.
_Change = tuple[Registration, dict[str, object], list[dict[str, object]]]


class Lives:
    """Keeps the rows' books of what their sandboxes do."""

    def __init__(self, planes: ControlPlanes, registry: Registry, troubles: Troubles) -> None:
        self._planes = planes
        self._registry = registry
        self._troubles = troubles

    async def note(
        self, context: Context, rows: Sequence[Registration], sandboxes: Sequence[Sandbox], now: datetime
    ) -> dict[str, Registration]:
        """Write down what is new in a look; returns the rows that were changed, by name. Most looks change none."""
        await self._troubles.note_links(context.name)
        scale = self._planes.time_scale(context)
        changes = await work_beside(len(sandboxes), _changes, rows, sandboxes, now, scale)
        return await asyncio.to_thread(self._write, changes) if changes else {}

    def _write(self, changes: Sequence[_Change]) -> dict[str, Registration]:
        return {
            row.name: self._registry.note(row, facts, kind=CAP, notes=notes, actor=_PLATFORM)
            for row, facts, notes in changes
        }


def _changes(rows: Sequence[Registration], sandboxes: Sequence[Sandbox], now: datetime, scale: float) -> list[_Change]:
    by_id = {row.id: row for row in rows if row.id}
    return [
        (row, facts, notes)
        for sandbox in sandboxes
        if (row := by_id.get(sandbox.id)) is not None
        for facts, notes in _news(sandbox, now, scale)
    ]


def _news(sandbox: Sandbox, now: datetime, scale: float) -> list[tuple[dict[str, object], list[dict[str, object]]]]:
    """Facts that a look makes anew, and the events that go with them."""
    facts: dict[str, object] = {}
    notes: list[dict[str, object]] = []
    before = Lived.of(sandbox.facts, sandbox.created_at)
    if (seen := before.seen(sandbox.state, now)) is not before:
        facts[LIVED] = seen.as_fact()
    warning = cap_warning(life_of(sandbox, (), scale=scale), sandbox, now, scale)
    if warning is not None:
        minutes, told = warning
        facts[CAP_TOLD] = minutes
        notes.append({"minutes": minutes, **told})
    return [(facts, notes)] if facts else []
