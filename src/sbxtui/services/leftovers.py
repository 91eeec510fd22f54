"""Recognising what a dead process left behind, from rows alone."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sbxtui.core.model import Phase, Registration
from sbxtui.core.text import iso
from sbxtui.store.leases import is_owner_alive

# The purpose of a sandbox that lives for one command.
ONE_SHOT = "run"


# A fact of a row whose recovery failed: before this instant it is left alone.
RETRY_AT = "retry_at"


def needs_recovery(rows: Sequence[Registration], now: datetime) -> bool:
    """Whether a dead process left something behind in these rows: cheap, asks nobody."""
    return any(is_unfinished(row, now) or is_orphan(row) for row in rows)


def is_unfinished(row: Registration, now: datetime) -> bool:
    """Whether a launch was never answered, or answered but not finished, its process is gone, and it is time to try."""
    is_open = row.phase is Phase.LAUNCHING or (row.phase is Phase.TRACKED and "launch" in row.facts)
    return is_open and str(row.facts.get(RETRY_AT, "")) <= iso(now) and not is_owner_alive(row.owner)


def is_orphan(row: Registration) -> bool:
    """Whether a row is a launched one-shot whose process is gone."""
    return row.phase is Phase.TRACKED and is_one_shot(row) and not is_owner_alive(row.owner)


def is_one_shot(row: Registration) -> bool:
    """Whether a row's sandbox was made for one command."""
    return row.phase is not Phase.UNKNOWN and row.facts.get("purpose") == ONE_SHOT
