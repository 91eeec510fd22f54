"""What of a sandbox's changes is never made on this machine, whoever asks for it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from sbxguest.tree.header import stays_inside
from sbxtui.services.sync.model import Change, Kind, Path, ancestors

UNSAFE_LINK = "unsafe_link"


def refused_of(changes: Sequence[Change]) -> dict[Path, str]:
    """The paths of changes that must not be made in this machine's folder, and the word for why.

    A link that leads out of the folder would lead this machine's programs out. With it everything at and below its path
    is refused: what it would replace stays whole.
    """
    unsafe = {change.path for change in changes if not _is_safe(change)}
    return {change.path: UNSAFE_LINK for change in changes if _is_at_or_below(change.path, unsafe)}


def without(changes: Iterable[Change], refused: dict[Path, str]) -> list[Change]:
    """The changes that are not refused, in their order."""
    return [change for change in changes if change.path not in refused]


def _is_safe(change: Change) -> bool:
    if change.entry is None or change.entry.kind is not Kind.LINK:
        return True
    return stays_inside(os.fsdecode(change.entry.content), depth=change.path.count(b"/"))


def _is_at_or_below(path: Path, unsafe: set[Path]) -> bool:
    return bool(unsafe) and not unsafe.isdisjoint(ancestors(path))
