"""Pseudo-shells: lines that run one after the other, each from the folder and variables the one before left."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sbxtui.core.model import ExecResult


@dataclass(frozen=True, slots=True)
class QueuedLine:
    """A line of a shell's queue; `position` 0 is the one that runs, or is about to. `id` is that of its job."""

    id: str
    line: str
    actor: str
    position: int
    is_running: bool
    queued_at: datetime


@dataclass(frozen=True, slots=True)
class ShellView:
    """Where a shell is. `variables` are the names of what is exported there: values may be secret and stay there."""

    name: str
    cwd: str
    variables: tuple[str, ...] = ()
    queue: tuple[QueuedLine, ...] = ()


@dataclass(frozen=True, slots=True)
class LineEnd:
    """How a line ended. `cwd` is where its shell is now; without `is_kept` it is as before, and `why` says so."""

    result: ExecResult
    cwd: str
    is_kept: bool = True
    why: str = ""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A name that a word may become."""

    name: str
    is_folder: bool


@dataclass(frozen=True, slots=True)
class Completion:
    """What a word may become: `base`, the part before the last name, then a candidate. `is_whole`: these are all."""

    base: str
    candidates: tuple[Candidate, ...]
    is_whole: bool = True
