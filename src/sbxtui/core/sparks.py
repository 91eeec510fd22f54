"""Numbers over time as one line of characters. Pure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

BLOCKS = "▁▂▃▄▅▆▇█"
ASCII_BLOCKS = "_.:-=+*#"
_NOTHING = " "


def spark(values: Sequence[float | None], *, top: float | None = None, blocks: str = BLOCKS) -> str:
    """One character for each value; a blank for one that is not known.

    Args:
        values: Oldest first, none below zero.
        top: What the highest character stands for; None: the largest of the values.
        blocks: The characters, lowest first.
    """
    known = [value for value in values if value is not None and math.isfinite(value)]
    highest = max(known, default=0.0) if top is None else top
    return "".join(_block(value, highest, blocks) for value in values)


def _block(value: float | None, highest: float, blocks: str) -> str:
    if value is None or not math.isfinite(value):
        return _NOTHING
    if highest <= 0:
        return blocks[0]
    return blocks[max(0, min(len(blocks) - 1, int(value / highest * len(blocks))))]


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
