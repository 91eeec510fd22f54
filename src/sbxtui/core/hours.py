"""The last hour of what a sandbox used, a minute a column, for every face. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from sbxtui.core.sparks import in_columns, spark
from sbxtui.core.usage import Usage

HOUR_S = 3600.0
COLUMNS = 60
# Of so many cores each is told by its number, too.
_CORES_TOLD = 16


def hour_lines(history: Sequence[Usage], now: datetime) -> list[str]:
    """Processors and memory as a line of text each; none while no more than one minute is known.

    Args:
        history: Samples, oldest first, the one just taken among them.
        now: The instant behind the last column.
    """
    limit = next((float(one.memory_limit_bytes) for one in reversed(history) if one.memory_limit_bytes), None)
    drawn = {
        "cpu 1 h": (_by_minute(history, now, _cpu), 100.0),
        "memory 1 h": (_by_minute(history, now, _memory), limit),
    }
    return [
        f"{label:<10} [{spark(columns, top=top)}]"
        for label, (columns, top) in drawn.items()
        if sum(value is not None for value in columns) > 1
    ]


def hour_json(history: Sequence[Usage], now: datetime) -> dict[str, object]:
    """The same for programs; null is a minute in which nobody looked."""
    cpu, memory = _by_minute(history, now, _cpu), _by_minute(history, now, _memory)
    return {
        "column_s": HOUR_S / COLUMNS,
        "cpu_percent": [None if value is None else round(value, 1) for value in cpu],
        "memory_bytes": [None if value is None else round(value) for value in memory],
    }


def cores_text(percents: Sequence[float]) -> str:
    """How busy each core is: one character each, and in percent where they are not too many."""
    told = f"  {' '.join(f'{one:.0f}' for one in percents)} %" if len(percents) <= _CORES_TOLD else ""
    return spark(percents, top=100.0) + told


def _by_minute(history: Sequence[Usage], now: datetime, of: Callable[[Usage], float | None]) -> list[float | None]:
    # What was seen just now stands in the last column.
    end = now.timestamp() + 1
    return in_columns([(one.at.timestamp(), of(one)) for one in history], end, HOUR_S, COLUMNS)


def _cpu(usage: Usage) -> float | None:
    return usage.cpu_percent


def _memory(usage: Usage) -> float | None:
    return usage.memory_bytes
