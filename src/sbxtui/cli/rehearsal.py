"""`local fault add|ls|clear`."""

from __future__ import annotations

import dataclasses

from sbxtui.cli.call import Call
from sbxtui.cli.fitting import Cut
from sbxtui.core.text import counted
from sbxtui.services.rehearsal import FaultRule, Rehearsal

_COLUMNS = ("ID", "KIND", "OPERATION", "RATE", "SEED", "AMOUNT", "LEFT", "FIRED")
_CUTS = (Cut("OPERATION", 12), Cut("SEED", 0), Cut("RATE", 0), Cut("LEFT", 0), Cut("OPERATION", 0), Cut("AMOUNT", 0))


async def add(call: Call) -> int:
    """Make a fault."""
    args = call.args
    rule = await _rehearsal(call).add(
        args.kind, args.op, rate=args.rate, seed=args.seed, amount=args.amount, times=args.times
    )
    call.out.result(dataclasses.asdict(rule))
    call.out.line(rule.id)
    return 0


async def ls(call: Call) -> int:
    """List faults."""
    found = await _rehearsal(call).list()
    if call.out.is_json:
        call.out.json([dataclasses.asdict(rule) for rule in found])
        return 0
    if not found:
        call.out.note("no faults: all that goes wrong now is real")
        return 0
    rows, names = [_row(rule) for rule in found], [rule.id for rule in found]
    call.out.table(_COLUMNS, rows, cuts=_CUTS, is_wide=call.args.wide, names=names)
    return 0


async def clear(call: Call) -> int:
    """Take faults away."""
    rehearsal = _rehearsal(call)
    count = 1 if call.args.id else len(await rehearsal.list())
    await rehearsal.clear(call.args.id)
    call.out.result({"cleared": count})
    call.out.note(f"{counted(count, 'fault', 'faults')} taken away")
    return 0


def _rehearsal(call: Call) -> Rehearsal:
    return Rehearsal(call.services.planes)


def _row(rule: FaultRule) -> tuple[str, ...]:
    left = "" if rule.left is None else str(rule.left)
    return (
        rule.id,
        rule.kind,
        rule.operation,
        f"{rule.rate:g}",
        str(rule.seed),
        f"{rule.amount:g}",
        left,
        str(rule.fired),
    )
