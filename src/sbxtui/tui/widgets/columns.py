"""Which columns of the table fit a width, and what stands in them. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from rich.cells import cell_len, set_cell_size

from sbxtui.core.life import cost_now
from sbxtui.core.model import Sandbox
from sbxtui.core.pricing import Cost, cost_text
from sbxtui.core.text import harmless_line
from sbxtui.core.values import dataclass
from sbxtui.tui.fleet import Fleet
from sbxtui.tui.words import age_text, isolation_word, network_text, shown_name, state_text, why_text

GUTTER_WIDTH = 4
_GAP = 2
# What stands last never touches the frame.
_MARGIN = 1


@dataclass(frozen=True, slots=True)
class Column:
    """One column: at least `min_width` cells, growing to `max_width` (0: all the rest)."""

    name: str
    min_width: int
    max_width: int
    sort: str


_NAME = Column("NAME", 10, 32, "name")
_STATE = Column("STATE", 12, 12, "state,name")
_AGE = Column("AGE", 4, 4, "age")
_IMAGE = Column("IMAGE", 13, 18, "image,name")
_NET = Column("NET", 9, 9, "")
_ISOLATION = Column("ISOLATION", 10, 10, "")
_CPU = Column("CPU 5MIN", 8, 8, "")
_PER_HOUR = Column("PER HOUR", 8, 8, "")
_SO_FAR = Column("SO FAR", 8, 8, "")
_WHY = Column("WHY", 10, 0, "")
ALL_COLUMNS = (_NAME, _STATE, _AGE, _IMAGE, _NET, _ISOLATION, _CPU, _PER_HOUR, _SO_FAR, _WHY)
# As width shrinks, columns go in this order; name and state never do.
_HIDE_ORDER = ("WHY", "CPU 5MIN", "PER HOUR", "IMAGE", "SO FAR", "NET", "ISOLATION", "AGE")
# While something is wrong, why it is stays longest that fits; so many cells tell it.
_HIDE_ORDER_WRONG = ("CPU 5MIN", "PER HOUR", "IMAGE", "SO FAR", "NET", "WHY", "ISOLATION", "AGE")
_WRONG_WIDTH = 24
_WRONG_ROWS = 100
# Before a name is cut shorter than this, other columns go.
_NAME_WIDTH = 16


@dataclass(frozen=True, slots=True)
class Slot:
    """A shown column and where it stands, in cells from the left edge."""

    column: Column
    start: int
    width: int


def layout(width: int, name_width: int = 0, wrong_width: int = 0) -> list[Slot]:
    """The columns that fit `width` cells, and how wide each is; names get up to `name_width`, within bounds.

    `wrong_width`: the cells of the longest reason of a row that needs one, 0 when all is well.
    """
    room = width - _least([_NAME, _STATE]) + _NAME.min_width
    name = replace(_NAME, min_width=max(_NAME.min_width, min(name_width, _NAME_WIDTH, room)))
    # Cut short, a reason still tells more than none.
    beside = width - _least([name, _STATE, _AGE, _ISOLATION]) - _GAP
    why = replace(_WHY, min_width=max(_WHY.min_width, min(wrong_width, _WRONG_WIDTH, beside)))
    columns = [name, *ALL_COLUMNS[1:-1], why]
    for hidden in _HIDE_ORDER_WRONG if wrong_width else _HIDE_ORDER:
        if _least(columns) <= width:
            break
        columns = [one for one in columns if one.name != hidden]
    spare = max(0, width - _least(columns))
    slots, start = [], GUTTER_WIDTH
    for column in columns:
        most = name_width if column is name else column.max_width
        wanted = max(0, min(most, column.max_width) - column.min_width)
        extra = spare if column.max_width == 0 else min(spare, wanted)
        # The name takes its share first; the reason takes what is left.
        spare -= extra
        slots.append(Slot(column, start, column.min_width + extra))
        start += column.min_width + extra + _GAP
    return slots


def cell_text(column: Column, sandbox: Sandbox, fleet: Fleet, now: datetime) -> str:
    """What stands in a column for a sandbox; harmless, one line, any length."""
    match column.name:
        case "NAME":
            return shown_name(sandbox)
        case "STATE":
            return state_text(sandbox.state)
        case "AGE":
            return age_text(sandbox, now)
        case "IMAGE":
            return harmless_line(sandbox.image_name, limit=80)
        case "NET":
            return network_text(sandbox)
        case "ISOLATION":
            return isolation_word(sandbox)
        case "CPU 5MIN":
            return fleet.cpu.get(sandbox.id, "")
        case "PER HOUR":
            return _cost_text(sandbox, fleet, now, lambda cost: cost.per_hour)
        case "SO FAR":
            return _cost_text(sandbox, fleet, now, lambda cost: cost.so_far)
        case _:
            failure = fleet.failure_of(sandbox)
            failed = f"{failure.doing} failed: {failure.error.message} (o)" if failure else ""
            return why_text(sandbox, fleet.last_seen_of(sandbox), now, failed)


def _cost_text(sandbox: Sandbox, fleet: Fleet, now: datetime, part: Callable[[Cost], float]) -> str:
    if fleet.context is None or not sandbox.is_tracked:
        return ""
    cost = cost_now(fleet.context, sandbox, now)
    return cost_text(part(cost), cost)


def wrong_width(fleet: Fleet, now: datetime) -> int:
    """The cells of the longest reason among the first rows at which a person should look."""
    return max((cell_len(cell_text(_WHY, one, fleet, now)) for one in fleet.wrong[:_WRONG_ROWS]), default=0)


def fitted(text: str, width: int) -> str:
    """`text` in exactly `width` cells; what is cut off is shown by `…`."""
    if cell_len(text) <= width:
        return set_cell_size(text, width)
    return set_cell_size(text, max(0, width - 1)) + "…" if width else ""


def _least(columns: list[Column]) -> int:
    return GUTTER_WIDTH + sum(column.min_width for column in columns) + _GAP * (len(columns) - 1) + _MARGIN
