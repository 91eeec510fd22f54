"""Numbers over time as one line of characters. Pure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

BLOCKS = "▁▂▃▄▅▆▇█"
_NOTHING = " "


def spark(values: Sequence[float | None], *, top: float | None = None) -> str:
    """One character for each value; a blank for one that is not known.

    Args:
        values: Oldest first, none below zero.
        top: What the highest character stands for; None: the largest of the values.
    """
    return chart(values, top=top, height=1)[0]


def chart(values: Sequence[float | None], *, top: float | None, height: int) -> list[str]:
    """The same as a chart of several lines, the uppermost first."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    highest = (max(known, default=0.0) if top is None else top) or 1.0
    steps = [_steps(value, highest, height * len(BLOCKS)) for value in values]
    return ["".join(_block(step, line * len(BLOCKS)) for step in steps) for line in range(height - 1, -1, -1)]


def _steps(value: float | None, highest: float, most: int) -> int:
    """How high a value stands, in eighths of a line: at least one, so that it is seen to be known; 0 if it is not."""
    if value is None or not math.isfinite(value):
        return 0
    return max(1, min(most, math.ceil(value / highest * most)))


def _block(step: int, below: int) -> str:
    return _NOTHING if step <= below else BLOCKS[min(len(BLOCKS), step - below) - 1]


def in_columns(points: Sequence[tuple[float, float | None]], end: float, span: float, width: int) -> list[float | None]:
    """Values over a span of time as `width` columns of it: the mean of each column's, None where there was none.

    Args:
        points: Instants and values.
        end: The instant behind the last column.
        span: The time that all columns stand for, in the unit of the instants.
        width: How many columns.
    """
    sums = [0.0] * width
    counts = [0] * width
    for at, value in points:
        column = int((at - (end - span)) / span * width)
        if value is not None and 0 <= column < width:
            sums[column] += value
            counts[column] += 1
    return [total / count if count else None for total, count in zip(sums, counts, strict=True)]


def rates(points: Sequence[tuple[float, float | None]]) -> list[tuple[float, float | None]]:
    """A total that grows, as growth in each unit of time; one that shrank began anew."""
    found: list[tuple[float, float | None]] = []
    for (before_at, before), (at, now) in itertools.pairwise(points):
        if before is None or now is None or at <= before_at:
            found.append((at, None))
        else:
            found.append((at, max(0.0, now - before) / (at - before_at)))
    return found
