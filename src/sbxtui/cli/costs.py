"""`cost`, `budget` and `keep-awake`: what sandboxes cost, may cost, and how long they live."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from sbxtui.cli.call import Call
from sbxtui.cli.fitting import Cut
from sbxtui.core.errors import UsageError
from sbxtui.core.jobs import Job
from sbxtui.core.life import Bill, bill_json, life_words
from sbxtui.core.pricing import PRICES_OF, PRICES_SOURCE, usd_text
from sbxtui.services.awake import DEADLINE, awake_spec, until_words

_COLUMNS = ("NAME", "STATE", "PER HOUR", "SO FAR", "AT CAP", "BUDGET", "LIFE")
_CUTS = (Cut("LIFE", 24), Cut("LIFE", 0), Cut("AT CAP", 0), Cut("STATE", 9), Cut("NAME", 12))
_NONE = "-"


async def cost(call: Call) -> int:
    """What one sandbox costs, with its jobs; or all of them, with what they come to."""
    inventory = await call.services.inventories.live(call.services.context)
    if inventory.error is not None:
        call.out.error(inventory.error)
    tracked = [one for one in inventory.sandboxes if one.is_tracked]
    if call.args.sandbox:
        row = await call.services.sandboxes.find(call.args.sandbox)
        tracked = [one for one in tracked if one.id == row.id]
    bills = await call.services.costs.of(call.services.context, tracked)
    jobs = await call.services.jobs.known(call.services.context.name, tracked[0].id) if call.args.sandbox else []
    if call.out.is_json:
        call.out.json(_json(call, bills, jobs))
    else:
        names = [bill.sandbox.name for bill in bills]
        rows, empty = [_row(bill) for bill in bills], "no sandboxes: `sbx create` makes one"
        call.out.table(_COLUMNS, rows, cuts=_CUTS, is_wide=call.args.wide, names=names, empty=empty)
        _tell_more(call, bills, jobs)
    return inventory.error.exit_code if inventory.error else 0


def _tell_more(call: Call, bills: Sequence[Bill], jobs: Sequence[Job]) -> None:
    for job in jobs:
        usd = _job_usd(job, bills[0])
        call.out.line(f"  job {job.id[:8]}  {usd_text(usd)}  {job.command}")
    if not bills:
        return
    if not call.args.sandbox:
        per_hour, so_far = (sum(getattr(bill.cost, name) for bill in bills) for name in ("per_hour", "so_far"))
        call.out.note(f"in all {usd_text(per_hour)} an hour, {usd_text(so_far)} so far")
    if any(not bill.is_paid for bill in bills):
        call.out.note("the local cloud costs nothing: this is what the same would cost on AWS, an estimate")
    elif any(bill.cost.is_estimate for bill in bills):
        call.out.note(
            "an estimate: snapshots are guessed, a suspension that nobody here saw counts as running, or nobody told "
            "the prices of this region"
        )
    call.out.note(f"prices: {PRICES_SOURCE}, {PRICES_OF}; work above the baseline comes on top and cannot be seen")


def _json(call: Call, bills: Sequence[Bill], jobs: Sequence[Job]) -> dict[str, object]:
    return {
        "context": call.services.context.name,
        "prices": {"source": PRICES_SOURCE, "date": PRICES_OF},
        "usd_per_hour": round(sum(bill.cost.per_hour for bill in bills), 6),
        "usd_so_far": round(sum(bill.cost.so_far for bill in bills), 6),
        "sandboxes": [
            {"name": bill.sandbox.name, "id": bill.sandbox.id, "state": bill.sandbox.state, **bill_json(bill)}
            for bill in bills
        ],
        **({"jobs": [_job_json(job, bills[0]) for job in jobs]} if call.args.sandbox else {}),
    }


def _job_json(job: Job, bill: Bill) -> dict[str, object]:
    return {"id": job.id, "command": job.command, "state": job.state, "usd": round(_job_usd(job, bill), 6)}


def _job_usd(job: Job, bill: Bill) -> float:
    """A job's share: what its sandbox costs while it runs, whatever else runs there."""
    span = (job.ended_at or datetime.now(UTC)) - job.created_at
    return max(0.0, span.total_seconds()) / 3600 * bill.running_h


def _row(bill: Bill) -> tuple[str, ...]:
    cost = bill.cost
    return (
        bill.sandbox.name,
        bill.sandbox.state.lower(),
        usd_text(cost.per_hour),
        usd_text(cost.so_far),
        _NONE if cost.at_cap is None else usd_text(cost.at_cap),
        _NONE if bill.budget_usd is None else usd_text(bill.budget_usd),
        life_words(bill.life, datetime.now(UTC)) or _NONE,
    )


async def budget(call: Call) -> int:
    """Give a sandbox a budget, take it back, or tell how much of it is spent."""
    args, services = call.args, call.services
    row = await services.sandboxes.find(args.sandbox)
    if args.clear:
        if args.usd is not None:
            raise UsageError("an amount and --clear exclude each other")
        had_one = await services.budgets.clear(row)
        call.out.result({"name": row.name, "budget_usd": None})
        call.out.note(f"`{row.name}` has no budget any more" if had_one else f"`{row.name}` had no budget")
        return 0
    if args.usd is not None:
        await services.budgets.set(row, args.usd, terminates=args.terminate)
        does = "terminated" if args.terminate else "suspended"
        call.out.note(
            f"`{row.name}` is {does} when it has cost {usd_text(args.usd)}, with a warning at 80 %; that needs this "
            "machine: `sbx create --budget` is kept by the platform itself"
        )
    inventory = await services.inventories.live(services.context)
    bills = await services.costs.of(services.context, [one for one in inventory.sandboxes if one.id == row.id])
    for bill in bills:
        budget_words = "no budget" if bill.budget_usd is None else f"of {usd_text(bill.budget_usd)}"
        call.out.result({"name": row.name, **bill_json(bill)})
        call.out.line(f"{row.name}  {usd_text(bill.cost.so_far)} so far  {budget_words}")
    return 0


async def keep_awake(call: Call) -> int:
    """Keep a sandbox awake on purpose, let it fall asleep again, or list those that are kept awake."""
    args, services = call.args, call.services
    if not args.sandbox:
        return _list_awake(call)
    row = await services.sandboxes.find(args.sandbox)
    if args.stop:
        was_kept = await services.keep_awake.stop(row)
        call.out.result({"name": row.name, "kept_awake": False})
        call.out.note(f"`{row.name}` may fall asleep again" if was_kept else f"nothing kept `{row.name}` awake")
        return 0
    if not args.until:
        raise UsageError("until when?", hint=f"sbx keep-awake {row.name} --until job, or 2h, or a time")
    deadline = timedelta(seconds=args.deadline) if args.deadline else DEADLINE
    spec = awake_spec(args.until, datetime.now(UTC), deadline=deadline, budget_usd=args.budget)
    link = await services.keep_awake.start(row, spec)
    call.out.result({"name": row.name, "kept_awake": True, **link.spec})
    if row.request.idle is None:
        call.out.note(f"note: nothing suspends `{row.name}` anyway: it was made without --idle")
    call.out.note(f"`{row.name}` is kept awake {until_words(link)}, by the runner: that needs this machine")
    return 0


def _list_awake(call: Call) -> int:
    links = call.services.keep_awake.list(call.services.context.name)
    if call.out.is_json:
        call.out.json([{"name": link.sandbox, "wanted": link.wanted, **link.spec, **link.status} for link in links])
    for link in links:
        state = str(link.status.get("state") or "waiting for the runner")
        reason = f"  {link.status['reason']}" if link.status.get("reason") else ""
        call.out.line(f"{link.sandbox}  {state}  {until_words(link)}{reason}")
    if not links:
        call.out.note("no sandbox is kept awake")
    return 0
