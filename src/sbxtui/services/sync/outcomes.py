"""What became of a plan."""

from __future__ import annotations

from dataclasses import dataclass, field

from sbxtui.services.sync.model import Path


@dataclass(slots=True)
class Outcomes:
    """What came of carrying out a plan.

    Attributes:
        done: Paths that were changed.
        again: Paths of this machine to look at again: they changed while they were sent.
        moved_on: Paths on which the sandbox holds something else than was thought.
        failed: Paths that could not be changed, and the word for why.
        batch: The number under which it is remembered for `undo`; 0 for nothing.
    """

    done: list[Path] = field(default_factory=list)
    again: set[Path] = field(default_factory=set)
    moved_on: set[Path] = field(default_factory=set)
    failed: dict[Path, str] = field(default_factory=dict)
    batch: int = 0
