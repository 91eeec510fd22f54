"""`metrics` and `top`: what sandboxes use."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from datetime import UTC, datetime

from sbxtui.cli.call import Call
from sbxtui.cli.fitting import Cut
from sbxtui.core.documents import usage_json
from sbxtui.core.errors import UsageError
from sbxtui.core.hours import cores_text, hour_json, hour_lines
from sbxtui.core.text import short_size
from sbxtui.core.usage import RESTING, Usage
from sbxtui.services.metrics import SandboxUsage

_UNKNOWN = "-"
_COLUMNS = ("NAME", "CPU", "5 MIN", "CORES", "MEMORY", "LIMIT", "DISK", "RECEIVED", "SENT", "PROCESSES", "NOTE")
_CUTS = (
    *(Cut("NOTE", 16), Cut("SENT", 0), Cut("RECEIVED", 0), Cut("CORES", 0), Cut("DISK", 0), Cut("LIMIT", 0)),
    *(Cut("NOTE", 0), Cut("PROCESSES", 0), Cut("5 MIN", 0), Cut("NAME", 12)),
)
_SAMPLE_COLUMNS = ("TIME", "CPU", "MEMORY", "DISK", "RECEIVED", "SENT", "PROCESSES", "OOM")
_SORTS: dict[str, Callable[[Usage], float]] = {
    "cpu": lambda usage: (usage.cpu_percent or 0.0) * (usage.cores or 1.0),
    "memory": lambda usage: float(usage.memory_bytes or 0),
    "disk": lambda usage: float(usage.disk_bytes or 0),
    "processes": lambda usage: float(usage.processes or 0),
}


async def metrics(call: Call) -> int:
    """What one sandbox uses, once or again and again."""
    row = await call.services.sandboxes.find(call.args.sandbox)
    if not call.args.watch:
        usage = await call.services.metrics.sample(row)
        history, now = await call.services.metrics.last_hour(row), datetime.now(UTC)
        call.out.result({"name": row.name, **usage_json(usage), "last_hour": hour_json(history, now)})
        if not call.out.is_json:
            for line in [*usage_lines(usage), *hour_lines(history, now)]:
                call.out.line(line)
        return 0
    call.out.ends_by_interrupt = True
    samples = call.services.metrics.follow(row, interval_s=_interval_s(call))
    has_head = was_resting = False
    async with aclosing(samples):
        async for sample in samples:
            if sample is None:
                if not was_resting:
                    call.out.note(f"note: `{row.name}` is {RESTING}; going on when something is begun in it")
            elif call.out.is_json:
                call.out.json({"name": row.name, **usage_json(sample)})
            else:
                _sample_row(call, sample, with_head=not has_head)
                has_head = True
            was_resting = sample is None
    return 0


async def top(call: Call) -> int:
    """What all sandboxes use, the busiest first."""
    if call.args.sort not in (*_SORTS, "name"):
        raise UsageError(f"cannot sort by `{call.args.sort}`", hint=f"by {', '.join(_SORTS)} or name")
    interval_s = _interval_s(call)
    call.out.ends_by_interrupt = call.args.watch
    while True:
        inventory, found = await call.services.metrics.all()
        if inventory.error is not None:
            call.out.error(inventory.error)
        rows = _sorted(found, call.args.sort)
        if call.args.watch:
            call.out.new_page()
        if call.out.is_json:
            call.out.json([_json(one) for one in rows])
        elif not rows and inventory.error is None:
            call.out.note("no sandboxes: `sbx create` makes one")
        else:
            names = [one.sandbox.name for one in rows]
            of_late = await call.services.metrics.cpu_of_late([one.sandbox for one in rows])
            cells = [_row(one, of_late.get(one.sandbox.id, "")) for one in rows]
            call.out.table(_COLUMNS, cells, cuts=_CUTS, is_wide=call.args.wide, names=names)
        if not call.args.watch:
            return inventory.error.exit_code if inventory.error else 0
        await asyncio.sleep(interval_s)


def usage_lines(usage: Usage) -> list[str]:
    """A sample as people read it: one line for each resource."""
    throttled = f", held back for {usage.throttled_s:.1f} s so far" if usage.throttled_s else ""
    swap = f", swap {_size(usage.swap_bytes)}" if usage.swap_bytes else ""
    kills = f", {usage.oom_kills} killed for want of it" if usage.oom_kills else ""
    limit = "" if usage.processes_limit is None else f" of {usage.processes_limit}"
    files = "" if usage.open_files is None else f", {usage.open_files} open files"
    used = "" if usage.disk_bytes is None else f"{_size(usage.disk_bytes)} used, "
    network = "none of its own"
    if usage.received_bytes is not None:
        network = f"{_size(usage.received_bytes)} received, {_size(usage.sent_bytes)} sent"
    lines = [
        f"cpu        {_percent(usage.cpu_percent)} of {_cores(usage)}{throttled}",
        f"memory     {_size(usage.memory_bytes)} of {_size(usage.memory_limit_bytes)}{_share(usage)}{swap}{kills}",
        f"disk       {used}{_size(usage.disk_free_bytes)} free",
        f"network    {network}",
        f"processes  {_count(usage.processes)}{limit}{files}",
    ]
    if len(usage.core_percents) > 1:
        lines.insert(1, f"each core  {cores_text(usage.core_percents)}")
    if usage.load:
        lines.append("load       " + " ".join(f"{one:.2f}" for one in usage.load))
    return lines


def _interval_s(call: Call) -> float:
    if call.args.interval < 1:
        raise UsageError(f"--interval {call.args.interval:g} is too short", hint="one second or more")
    return float(call.args.interval)


def _sorted(found: Sequence[SandboxUsage], key: str) -> list[SandboxUsage]:
    rows = sorted(found, key=lambda one: one.sandbox.name)
    if key == "name":
        return rows
    return sorted(rows, key=lambda one: -1.0 if one.usage is None else _SORTS[key](one.usage), reverse=True)


def _json(one: SandboxUsage) -> dict[str, object]:
    return {
        "name": one.sandbox.name,
        "id": one.sandbox.id,
        "state": one.sandbox.state,
        "usage": None if one.usage is None else usage_json(one.usage),
        "note": one.why or None,
    }


def _row(one: SandboxUsage, cpu_of_late: str) -> tuple[str, ...]:
    usage = one.usage
    if usage is None:
        return (one.sandbox.name, _UNKNOWN, cpu_of_late, *[_UNKNOWN] * (len(_COLUMNS) - 4), one.why)
    return (
        *(one.sandbox.name, _percent(usage.cpu_percent), cpu_of_late),
        "" if usage.cores is None else f"{usage.cores:g}",
        *(_size(usage.memory_bytes), _size(usage.memory_limit_bytes), _size(usage.disk_bytes)),
        *(_size(usage.received_bytes), _size(usage.sent_bytes), _count(usage.processes), one.why),
    )


def _sample_row(call: Call, usage: Usage, *, with_head: bool) -> None:
    cells = (
        *(f"{usage.at.astimezone():%H:%M:%S}", _percent(usage.cpu_percent), _size(usage.memory_bytes)),
        *(_size(usage.disk_bytes), _size(usage.received_bytes), _size(usage.sent_bytes)),
        *(_count(usage.processes), _count(usage.oom_kills)),
    )
    for row in ([_SAMPLE_COLUMNS] if with_head and not call.out.is_quiet else []) + [cells]:
        call.out.line("  ".join(f"{cell:<9}" for cell in row).rstrip())


def _cores(usage: Usage) -> str:
    if usage.cores is None:
        return "its cores"
    return "1 core" if usage.cores == 1 else f"{usage.cores:g} cores"


def _share(usage: Usage) -> str:
    return "" if usage.memory_percent is None else f" ({usage.memory_percent:.0f} %)"


def _percent(percent: float | None) -> str:
    return _UNKNOWN if percent is None else f"{percent:.1f} %"


def _size(size_bytes: int | None) -> str:
    return _UNKNOWN if size_bytes is None else short_size(size_bytes)


def _count(count: int | None) -> str:
    return _UNKNOWN if count is None else str(count)
