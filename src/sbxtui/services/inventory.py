"""The list of sandboxes: names from the store, states from the control plane in one call per context, none per row."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sbxtui.core.errors import SbxError
from sbxtui.core.kills import Kills
from sbxtui.core.model import (
    Context,
    ContextKind,
    Phase,
    Registration,
    Sandbox,
    SandboxId,
    SandboxListing,
    SandboxState,
)
from sbxtui.core.threads import work_beside
from sbxtui.core.values import dataclass
from sbxtui.home import Home
from sbxtui.services.lives import Lives
from sbxtui.services.planes import ControlPlanes
from sbxtui.services.reasons import ENDED, Reasons
from sbxtui.store.registry import Registry

if TYPE_CHECKING:
    from sbxtui.control.api import ControlApi

# A listing may not show yet what was launched a moment ago.
_LISTING_LAG = timedelta(seconds=60)
_MOVING = frozenset({SandboxState.PENDING, SandboxState.SUSPENDING, SandboxState.TERMINATING})
# All of a sandbox but when it was seen.
_TOLD = attrgetter(*(field.name for field in fields(Sandbox) if field.name != "seen_at"))
# So often the cache is written while nothing changes: how old it is, is all that it would tell anew.
_SAVE_EVERY = timedelta(seconds=30)
_TOO_NEW = "in a phase that only a newer sbx knows"


@dataclass(frozen=True, slots=True)
class Inventory:
    """Sandboxes of one context. `error` says why states are unknown; `seen_at` is when the control plane answered."""

    context: Context
    sandboxes: tuple[Sandbox, ...]
    seen_at: datetime | None
    error: SbxError | None = None

    def tells_same_as(self, other: Inventory) -> bool:
        """Whether it differs from another one by nothing but when it was seen."""
        if (self.context, self.error) != (other.context, other.error) or len(self.sandboxes) != len(other.sandboxes):
            return False
        return all(_TOLD(one) == _TOLD(before) for one, before in zip(self.sandboxes, other.sandboxes, strict=True))

    @property
    def is_moving(self) -> bool:
        """Whether a sandbox is on its way into another state."""
        return any(one.state in _MOVING for one in self.sandboxes)


class Inventories:
    """Lists the sandboxes of contexts, live or as last seen."""

    def __init__(self, home: Home, planes: ControlPlanes, registry: Registry, reasons: Reasons, lives: Lives) -> None:
        self._home = home
        self._planes = planes
        self._registry = registry
        self._reasons = reasons
        self._lives = lives
        self._saved: dict[str, Inventory] = {}
        self._last: dict[str, Inventory] = {}

    async def live(self, context: Context) -> Inventory:
        """Ask the control plane. When that fails, the tracked rows come back with state UNKNOWN and the error."""
        rows = await asyncio.to_thread(self._registry.list, context.name)
        if not rows and context.kind is ContextKind.LOCAL and not _has_local_sandboxes(self._home):
            return Inventory(context, (), datetime.now(UTC))
        try:
            plane = await self._planes.open(context)
            listings = await plane.list()
            if _misses_some(rows, listings):
                # Nothing is called gone because somebody looked with the credentials of another account.
                await self._planes.check_account(context)
        except SbxError as exc:
            return Inventory(context, tuple(_unseen(row) for row in rows), None, exc)
        seen_at = datetime.now(UTC)
        sandboxes = await work_beside(len(rows), _joined, context, rows, listings, seen_at)
        changed = await self._lives.note(context, rows, sandboxes, seen_at)
        rows = [changed.get(row.name, row) for row in rows]
        inventory = Inventory(context, tuple(await self._with_reasons(context, plane, rows, sandboxes)), seen_at)
        await self._keep(inventory)
        self._last[context.name] = inventory
        return inventory

    async def recent(self, context: Context, *, within_s: float) -> Inventory:
        """As `live`; what was answered to anybody here less than `within_s` ago is good enough."""
        last = self._last.get(context.name)
        return last if last is not None and _age(last).total_seconds() < within_s else await self.live(context)

    async def _keep(self, inventory: Inventory) -> None:
        """Write the cache, unless it would tell what it does already."""
        saved = self._saved.get(inventory.context.name)
        if saved is not None and inventory.tells_same_as(saved) and _age(saved) < _SAVE_EVERY:
            return
        await asyncio.to_thread(_save, self._cache_file(inventory.context), inventory)
        self._saved[inventory.context.name] = inventory

    def cached(self, context: Context) -> Inventory:
        """The tracked rows with the states of the last live look, for a first picture; asks nobody.

        Rows without such a state are UNKNOWN.
        """
        seen_at, states = _load(self._cache_file(context))
        rows = self._registry.list(context.name)
        return Inventory(context, tuple(_remembered(row, states, seen_at) for row in rows), seen_at)

    async def _with_reasons(
        self, context: Context, plane: ControlApi, rows: Sequence[Registration], sandboxes: Sequence[Sandbox]
    ) -> list[Sandbox]:
        """The same sandboxes with why they ended, or what was killed in them while they live."""
        gone = {one.id for one in sandboxes if one.state is SandboxState.TERMINATED and one.is_tracked}
        noted = {row.name: (row, kills) for row, kills in await self._reasons.note_kills(context, rows)}
        ended = await self._reasons.note_ends(plane, [row for row, _ in noted.values() if row.id in gone])
        return await work_beside(len(sandboxes), _all_with_reasons, sandboxes, noted, ended)

    def _cache_file(self, context: Context) -> Path:
        return self._home.cache_dir / "states" / f"{context.name}.json"


def _age(inventory: Inventory) -> timedelta:
    return datetime.now(UTC) - inventory.seen_at if inventory.seen_at is not None else timedelta.max


def _all_with_reasons(
    sandboxes: Sequence[Sandbox], noted: Mapping[str, tuple[Registration, Kills]], ended: Mapping[str, Registration]
) -> list[Sandbox]:
    return [
        _with_reason(one, ended.get(one.name, noted[one.name][0]), noted[one.name][1]) if one.is_tracked else one
        for one in sandboxes
    ]


def _with_reason(sandbox: Sandbox, row: Registration, kills: Kills) -> Sandbox:
    if sandbox.state.is_gone:
        reason = str(row.facts.get(ENDED) or sandbox.state_reason)
    else:
        reason = sandbox.state_reason or kills.words
    return replace(sandbox, state_reason=reason, facts=row.facts)


def _misses_some(rows: Sequence[Registration], listings: Sequence[SandboxListing]) -> bool:
    return bool({row.id for row in rows if row.id} - {listing.id for listing in listings})


def _joined(
    context: Context, rows: Sequence[Registration], listings: Sequence[SandboxListing], seen_at: datetime
) -> list[Sandbox]:
    by_id = {listing.id: listing for listing in listings}
    tracked = [_with_listing(row, by_id.pop(row.id, None), seen_at) for row in rows]
    untracked = [_untracked(context, listing, seen_at) for listing in by_id.values() if not listing.state.is_gone]
    return tracked + untracked


def _with_listing(row: Registration, listing: SandboxListing | None, seen_at: datetime) -> Sandbox:
    if row.phase is Phase.UNKNOWN:
        return _sandbox(row, listing.state if listing else SandboxState.UNKNOWN, seen_at, _TOO_NEW)
    if listing is not None:
        return _sandbox(row, listing.state, seen_at)
    if row.phase is Phase.LAUNCHING:
        return _sandbox(row, SandboxState.PENDING, seen_at, "launching")
    if seen_at - row.created_at < _LISTING_LAG:
        return _sandbox(row, SandboxState.UNKNOWN, seen_at, "not listed yet")
    return _sandbox(row, SandboxState.TERMINATED, seen_at, "no longer listed by the control plane")


def _unseen(row: Registration) -> Sandbox:
    return _sandbox(row, SandboxState.UNKNOWN, None)


def _remembered(row: Registration, states: Mapping[SandboxId, str], seen_at: datetime | None) -> Sandbox:
    state = states.get(row.id)
    return _sandbox(row, SandboxState(state), seen_at) if state in list(SandboxState) else _unseen(row)


def _sandbox(row: Registration, state: SandboxState, seen_at: datetime | None, reason: str = "") -> Sandbox:
    return Sandbox(
        context=row.context,
        name=row.name,
        id=row.id,
        state=state,
        # A copy is launched as an image of its own; people know it by what it is a copy of.
        image_arn=str(row.facts.get("image_arn") or row.request.image_arn),
        image_version=row.request.image_version,
        created_at=row.created_at,
        endpoint=row.endpoint,
        state_reason=reason,
        labels=row.labels,
        facts=row.facts,
        seen_at=seen_at,
        idle=row.request.idle,
        max_duration_s=row.request.max_duration_s,
    )


def _untracked(context: Context, listing: SandboxListing, seen_at: datetime) -> Sandbox:
    return Sandbox(
        context=context.name,
        name="",
        id=listing.id,
        state=listing.state,
        image_arn=listing.image_arn,
        image_version=listing.image_version,
        created_at=listing.started_at,
        seen_at=seen_at,
    )


def _has_local_sandboxes(home: Home) -> bool:
    """Whether a local cloud of this home may hold anything; an untouched one need not be started to be listed."""
    return (home.local_dir / "cloud.json").exists()


def _save(file: Path, inventory: Inventory) -> None:
    """Remember states for the next first picture; a cache that cannot be written is no reason to fail."""
    states = {one.id: one.state.value for one in inventory.sandboxes if one.id}
    seen_at = inventory.seen_at.isoformat() if inventory.seen_at else None
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=file.parent)
        with os.fdopen(handle, "w") as out:
            json.dump({"seen_at": seen_at, "states": states}, out)
        Path(temporary).replace(file)
    except OSError:
        return


def _load(file: Path) -> tuple[datetime | None, dict[SandboxId, str]]:
    try:
        facts: Any = json.loads(file.read_bytes())
        seen_at = datetime.fromisoformat(facts["seen_at"])
        return seen_at, {SandboxId(key): str(value) for key, value in facts["states"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None, {}
