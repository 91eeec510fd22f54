"""What the sandbox changed, as a person reviews it, takes it over, decides between two versions, and takes it back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sbxtui.core.errors import Conflict
from sbxtui.services.sync.halts import MANY_DELETES, Halt
from sbxtui.services.sync.intake import Intake
from sbxtui.services.sync.model import Change, Difference, Mode, Op, Path, Side
from sbxtui.services.sync.pair import Outcomes, Pair
from sbxtui.services.sync.plan import plan
from sbxtui.services.sync.safety import refused_of, without

# Files that this machine runs by itself, or that decide what it runs.
_RUN_NAMES = frozenset({b".envrc", b"makefile", b"package.json", b"setup.py", b"conftest.py", b"build.rs", b".npmrc"})
_RUN_FOLDERS = (b".github/", b".gitlab-ci", b".vscode/", b".idea/", b".husky/", b".circleci/", b".devcontainer/")


@dataclass(frozen=True, slots=True)
class Reviewed:
    """What taking over would do.

    Attributes:
        changes: Steps in this machine's folder, in their order.
        conflicts: Paths both sides changed: they are left as they are.
        halts: Why a person has to look first; empty when nothing speaks against it.
        refused: Paths that are never taken over, and the word for why.
    """

    changes: tuple[Change, ...]
    conflicts: tuple[Difference, ...]
    halts: tuple[Halt, ...]
    refused: dict[Path, str]


async def review(pair: Pair, paths: Sequence[Path] = ()) -> Reviewed:
    """Look at both sides, and say what the sandbox changed at `paths` and below; at all of it if there are none.

    The caller holds `Ancestors.cycle`, here and in the rest of this module.
    """
    await pair.load()
    await pair.look()
    pushed = pair.compare()
    halts = pair.halts(pushed)
    if not halts:
        await pair.adopt(pushed)
    planned = plan(pair.base, pair.local.listing(), pair.there.listing(), Mode.TWO_WAY)
    halts = halts or pair.halts(planned)
    wanted = [change for change in planned.changes if change.side is Side.LOCAL and is_asked(change, paths)]
    refused = refused_of(wanted)
    return Reviewed(tuple(without(wanted, refused)), planned.conflicts, halts, refused)


def check_halts(name: str, reviewed: Reviewed, *, accepts_deletes: bool) -> None:
    """Refuse what a person has to look into first; `accepts_deletes`: that the sandbox deleted much is no reason.

    Raises:
        Conflict: There is such a reason; the hint says what goes on nevertheless.
    """
    halts = [halt for halt in reviewed.halts if not (accepts_deletes and halt.code == MANY_DELETES)]
    if not halts:
        return
    is_for_deletes = all(halt.code == MANY_DELETES for halt in halts)
    again = f"sbx sync pull {name} --accept-deletes" if is_for_deletes else f"sbx sync resume {name}"
    raise Conflict(
        f"nothing was taken over: {'; '.join(halt.words for halt in halts)}",
        hint=f"if that is right: `{again}`",
        details={"halts": [halt.code for halt in halts]},
    )


def only_seen(seen: Reviewed, now: Reviewed) -> tuple[Reviewed, set[Path]]:
    """What a person has seen and what is still so, and the paths that changed since."""
    shown = set(seen.changes)
    changes = tuple(change for change in now.changes if change in shown)
    changed = {change.path for change in shown.symmetric_difference(now.changes)}
    return replace(now, changes=changes), changed


def is_asked(change: Change, paths: Sequence[Path]) -> bool:
    """Whether a change is at or below one of `paths`, or makes a folder above one; all are if there are none."""
    if not paths or any(change.path == path or change.path.startswith(path + b"/") for path in paths):
        return True
    return change.op is Op.MKDIR and any(path.startswith(change.path + b"/") for path in paths)


def may_run(path: Path) -> bool:
    """Whether this machine may run what the file says without being asked: a person should look twice."""
    lowered = path.lower()
    return lowered.rpartition(b"/")[2] in _RUN_NAMES or lowered.startswith(_RUN_FOLDERS)


async def take_over(pair: Pair, intake: Intake, reviewed: Reviewed, on_bytes: Callable[[int], None]) -> Outcomes:
    """Make the changes in this machine's folder; what they replace goes to the trash."""
    outcomes = await pair.pull(reviewed.changes, intake, on_bytes)
    await asyncio.to_thread(pair.ancestors.forget_taken)
    return outcomes
