"""Tools that tell what sandboxes use, without keeping any of them awake for it."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from datetime import UTC, datetime

from sbxtui.core.documents import usage_json
from sbxtui.core.hours import hour_json
from sbxtui.mcp_server import common
from sbxtui.mcp_server.call import Call
from sbxtui.mcp_server.params import Kind, Param
from sbxtui.mcp_server.reply import Reply
from sbxtui.mcp_server.tool import Effect, Tool, Toolset

_LONGEST_S = 45.0


async def sample(call: Call) -> Reply:
    """Of one sandbox, now, and what was seen in the last hour."""
    row, metrics = await call.sandbox(), call.services.metrics
    usage, history = await metrics.sample(row), await metrics.last_hour(row)
    return Reply({"name": row.name, **usage_json(usage), "last_hour": hour_json(history, datetime.now(UTC))})


async def all_(call: Call) -> Reply:
    """Of every sandbox, now."""
    inventory, found = await call.services.metrics.all()
    if inventory.error is not None:
        call.warnings.append(f"states are unknown: {inventory.error.message}")
    told = [
        {
            "name": one.sandbox.name,
            "state": one.sandbox.state.value,
            **({"usage": usage_json(one.usage)} if one.usage is not None else {}),
            **({"note": one.why} if one.why else {}),
        }
        for one in found
    ]
    return Reply({"sandboxes": told})


async def stream(call: Call) -> Reply:
    """Several samples of one sandbox, one after the other."""
    row = await call.sandbox()
    count, interval_s = call.args.whole("samples", 5), call.args.whole("interval_ms", 1_000) / 1_000
    found: list[dict[str, object] | None] = []
    try:
        async with (
            asyncio.timeout(_LONGEST_S),
            aclosing(call.services.metrics.follow(row, interval_s=interval_s)) as told,
        ):
            async for usage in told:
                found.append(None if usage is None else usage_json(usage))
                await call.progress(f"sample {len(found)} of {count}")
                if len(found) == count:
                    break
    except TimeoutError:
        call.warnings.append(f"cut after {_LONGEST_S:.0f} s: {len(found)} of {count} samples")
    resting = found.count(None)
    if resting:
        call.warnings.append(f"{resting} samples left out: asking then would have kept the sandbox awake")
    return Reply({"name": row.name, "samples": [one for one in found if one is not None]})


TOOLS = (
    Tool(
        "sandbox_metrics",
        Toolset.OBSERVE,
        Effect.READS,
        "What a sandbox uses now: cpu, memory, disk, network, processes.",
        sample,
        (common.NAME,),
    ),
    Tool("sandbox_metrics_all", Toolset.OBSERVE, Effect.READS, "What every sandbox uses now.", all_),
    Tool(
        "sandbox_metrics_stream",
        Toolset.OBSERVE,
        Effect.READS,
        "Several samples of what a sandbox uses.",
        stream,
        (
            common.NAME,
            Param("samples", Kind.WHOLE, "How many (5)", least=1, most=60),
            Param("interval_ms", Kind.WHOLE, "Pause between them (1000)", least=100, most=30_000),
        ),
    ),
)
