"""Tools for what sandboxes cost, and may cost."""

from __future__ import annotations

from collections.abc import Sequence

from sbxtui.core.errors import UsageError
from sbxtui.core.life import Bill, bill_json
from sbxtui.core.model import Registration
from sbxtui.core.pricing import PRICES_OF, PRICES_SOURCE
from sbxtui.mcp_server import common
from sbxtui.mcp_server.call import Call
from sbxtui.mcp_server.params import Kind, Param
from sbxtui.mcp_server.reply import Reply
from sbxtui.mcp_server.tool import Effect, Tool, Toolset


async def cost(call: Call) -> Reply:
    """Of one sandbox, or of all with what they come to."""
    row = await call.sandbox() if "name" in call.args else None
    bills = await _bills(call, row)
    if any(not bill.is_paid for bill in bills):
        call.warnings.append("the local cloud costs nothing: this is what the same would cost on AWS, an estimate")
    return Reply(
        {
            "prices": {"source": PRICES_SOURCE, "date": PRICES_OF},
            "usd_per_hour": round(sum(bill.cost.per_hour for bill in bills), 6),
            "usd_so_far": round(sum(bill.cost.so_far for bill in bills), 6),
            "sandboxes": [_told(bill) for bill in bills],
        }
    )


async def budget(call: Call) -> Reply:
    """Give a sandbox a budget, take it back, or tell how much of it is spent."""
    args = call.args
    row = await call.sandbox()
    if args.flag("clear"):
        if "usd" in args:
            raise UsageError("`usd` and `clear` exclude each other")
        await call.services.budgets.clear(row)
    elif "usd" in args:
        await call.services.budgets.set(row, _usd(args.text("usd")), terminates=args.flag("terminate"))
    bills = await _bills(call, row)
    return Reply(_told(bills[0]) if bills else {"name": row.name})


async def _bills(call: Call, row: Registration | None) -> Sequence[Bill]:
    inventory = await call.services.inventories.live(call.services.context)
    wanted = [one for one in inventory.sandboxes if one.is_tracked and (row is None or one.id == row.id)]
    return await call.services.costs.of(call.services.context, wanted)


def _told(bill: Bill) -> dict[str, object]:
    return {"name": bill.sandbox.name, "state": bill.sandbox.state.value, **bill_json(bill)}


def _usd(text: str) -> float:
    try:
        usd = float(text)
    except ValueError as exc:
        raise UsageError(f"`usd` cannot be `{text[:40]}`", hint="dollars, like 2.50") from exc
    if not 0 < usd < 1e9:
        raise UsageError(f"`usd` cannot be {text[:40]}", hint="dollars, like 2.50")
    return usd


TOOLS = (
    Tool(
        "sandbox_cost",
        Toolset.OBSERVE,
        Effect.READS,
        "What a sandbox costs and has cost, or all of them.",
        cost,
        (Param("name", help="One sandbox; all if left out"),),
    ),
    Tool(
        "sandbox_budget",
        Toolset.OBSERVE,
        Effect.SETS,
        "Give a sandbox a budget: it is suspended when it has cost that much. Tells what is spent.",
        budget,
        (
            common.NAME,
            Param("usd", help="Dollars, like 2.50"),
            Param("terminate", Kind.FLAG, "Terminate it instead"),
            Param("clear", Kind.FLAG, "Take its budget back"),
        ),
    ),
)
