"""`ls ps inspect`, and what `sbx` prints where no dashboard can open."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial

from sbxtui.cli import show
from sbxtui.cli.call import Call
from sbxtui.cli.output import stdout_is_terminal
from sbxtui.cli.recovery import recover
from sbxtui.core.documents import inspected_json, sandbox_json
from sbxtui.core.filters import parse_filter, sort_sandboxes
from sbxtui.core.life import Bill, bill_json
from sbxtui.core.model import Context, Sandbox
from sbxtui.services.inventory import Inventory


async def ls_default(call: Call) -> int:
    """`sbx` without a verb and without a terminal."""
    return await _list(call, all_contexts=False, with_terminated=False, filter_text="", sort="name")


async def ls(call: Call) -> int:
    """List sandboxes."""
    args = call.args
    return await _list(
        call, all_contexts=args.all_contexts, with_terminated=args.all, filter_text=args.filter, sort=args.sort
    )


async def ps(call: Call) -> int:
    """Status of one sandbox, or the list."""
    if not call.args.sandbox:
        return await ls_default(call)
    row = await call.services.sandboxes.find(call.args.sandbox)
    inventory = await call.services.inventories.live(call.services.context)
    _report(call, inventory)
    found = [one for one in inventory.sandboxes if one.name == row.name]
    if call.out.is_json:
        bills = await call.services.costs.of(call.services.context, found)
        call.out.json({**sandbox_json(found[0]), **bill_json(bills[0])} if found else None)
    _print(call, show.SANDBOX_COLUMNS, _cells(call, [call.services.context], found), found)
    return inventory.error.exit_code if inventory.error else 0


async def inspect(call: Call) -> int:
    """The control plane's record and ours, as JSON."""
    row = await call.services.sandboxes.find(call.args.sandbox)
    record = await call.services.sandboxes.record(row.id)
    call.out.document(inspected_json(row, record))
    return 0


async def _list(call: Call, *, all_contexts: bool, with_terminated: bool, filter_text: str, sort: str) -> int:
    wanted = parse_filter(filter_text)
    sort_sandboxes([], sort)
    await recover(call)
    services = call.services
    contexts = services.contexts.list() if all_contexts else [services.context]
    inventories = await asyncio.gather(*(services.inventories.live(context) for context in contexts))
    now = datetime.now(UTC)
    spent = {one.context.name: partial(services.costs.spent_usd, one.context) for one in inventories}
    found = [one for inventory in inventories for one in inventory.sandboxes]
    matching = [one for one in found if wanted.matches(one, now, spent[one.context])]
    shown = [one for one in matching if with_terminated or not one.state.is_gone]
    rows = sort_sandboxes(shown, sort)
    if call.out.is_json:
        bills = await _bills(call, contexts, rows)
        call.out.json([{**sandbox_json(one), **bill_json(bill)} for one, bill in zip(rows, bills, strict=True)])
    else:
        is_known = not any(one.error for one in inventories)
        _table(call, contexts, rows, with_context=all_contexts, empty=_nothing(filter_text) if is_known else "")
    for inventory in inventories:
        _report(call, inventory)
    _report_shortfall(call, contexts)
    _report_hidden(call, len(matching) - len(shown))
    return next((inventory.error.exit_code for inventory in inventories if inventory.error), 0)


async def _bills(call: Call, contexts: Sequence[Context], rows: Sequence[Sandbox]) -> list[Bill]:
    by_id: dict[tuple[str, str, str], Bill] = {}
    for context in contexts:
        own = [one for one in rows if one.context == context.name]
        bills = await call.services.costs.of(context, own)
        by_id |= {(one.context, one.id, one.name): bill for one, bill in zip(own, bills, strict=True)}
    return [by_id[one.context, one.id, one.name] for one in rows]


def _table(call: Call, contexts: Sequence[Context], rows: Sequence[Sandbox], *, with_context: bool, empty: str) -> None:
    if not rows:
        if empty:
            call.out.note(empty)
        return
    columns = ("CONTEXT", *show.SANDBOX_COLUMNS) if with_context else show.SANDBOX_COLUMNS
    cells = _cells(call, contexts, rows)
    if with_context:
        cells = [(one.context, *row) for one, row in zip(rows, cells, strict=True)]
    _print(call, columns, cells, rows)


def _cells(call: Call, contexts: Sequence[Context], rows: Sequence[Sandbox]) -> list[tuple[str, ...]]:
    # A program that reads the list has no width that anything must fit into.
    is_wide = call.args.wide or not stdout_is_terminal()
    known = {context.name: context for context in contexts}
    # What jobs run decides nothing that is shown here.
    bills = [call.services.costs.of_known(known[one.context], [one], ())[0] if one.is_tracked else None for one in rows]
    return [
        show.sandbox_row(one, bill.cost if bill else None, is_wide=is_wide)
        for one, bill in zip(rows, bills, strict=True)
    ]


def _nothing(filter_text: str) -> str:
    """What an empty list says: nothing shown is not nothing there where a filter hides."""
    return "nothing to show" if filter_text else "no sandboxes: `sbx create` makes one"


def _print(call: Call, columns: Sequence[str], cells: Sequence[Sequence[str]], rows: Sequence[Sandbox]) -> None:
    cuts = show.SANDBOX_CUTS if all(one.name for one in rows) else show.UNTRACKED_CUTS
    names = [one.name or one.id for one in rows]
    call.out.table(columns, cells, cuts=cuts, is_wide=call.args.wide, names=names)


def _report(call: Call, inventory: Inventory) -> None:
    if inventory.error is not None:
        call.out.error(inventory.error)


def _report_shortfall(call: Call, contexts: Sequence[Context]) -> None:
    """What is merely not installed is `doctor`'s to say."""
    for context in contexts:
        shortfall = call.services.planes.isolation_shortfall(context)
        if shortfall.is_fault:
            call.out.note(f"note: new sandboxes get a weaker isolation: {shortfall.words}; see `sbx doctor`")


def _report_hidden(call: Call, count: int) -> None:
    if count:
        noun = "sandbox is" if count == 1 else "sandboxes are"
        call.out.note(f"note: {count} terminated {noun} not shown: `--all` shows, `sbx prune` forgets")
