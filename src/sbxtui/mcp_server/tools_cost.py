"""Tools for what sandboxes cost, and may cost."""

from __future__ import annotations

from collections.abc import Sequence

from sbxtui.core.errors import UsageError
from sbxtui.core.life import Bill, bill_json
from sbxtui.core.model import Registration
from sbxtui.core.pricing import PRICES_OF, PRICES_SOURCE
from sbxtui.mcp_server.call import Call
from sbxtui.mcp_server.params import Kind, Param
from sbxtui.mcp_server.reply import Reply
from sbxtui.mcp_server.tool import Effect, Tool, Toolset


async def cost(call: Call) -> Reply:
    """Of one sandbox, or of all with what they come to; gives one a budget, or takes it back, where that is asked."""
    row = await call.sandbox() if "name" in call.args else None
    await _set_budget(call, row)
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


async def _set_budget(call: Call, row: Registration | None) -> None:
    args = call.args
    sets, clears = "budget_usd" in args, args.flag("clear_budget")
    if not (sets or clears):
        if "terminate" in args:
            raise UsageError("`terminate` needs a `budget_usd`", hint="`sandbox_remove` ends a sandbox now")
        return
    if row is None:
        raise UsageError("`name` is missing", hint="a budget is of one sandbox")
    if sets and clears:
        raise UsageError("`budget_usd` and `clear_budget` exclude each other", hint="send one of them")
    if clears:
        await call.services.budgets.clear(row)
    else:
        await call.services.budgets.set(row, _usd(args.text("budget_usd")), terminates=args.flag("terminate"))


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
        raise UsageError(f"`budget_usd` cannot be `{text[:40]}`", hint="dollars, like 2.50") from exc
    if not 0 < usd < 1e9:
        raise UsageError(f"`budget_usd` cannot be {text[:40]}", hint="dollars, like 2.50")
    return usd


TOOLS = (
    Tool(
        "sandbox_cost",
        Toolset.OBSERVE,
        Effect.SETS,
        "What a sandbox costs and has cost, or all of them; can give one a budget, at which it is suspended.",
        cost,
        (
            Param("name", help="One sandbox; all if left out"),
            Param("budget_usd", help="Give it a budget in dollars, like 2.50", aliases=("usd",)),
            Param("terminate", Kind.FLAG, "With budget_usd: terminate it then instead"),
            Param("clear_budget", Kind.FLAG, "Take its budget back"),
        ),
        changing=("budget_usd", "terminate", "clear_budget"),
    ),
)
