"""The tool that tells who did what."""

from __future__ import annotations

import asyncio

from sbxtui.core.documents import event_json
from sbxtui.mcp_server.call import Call
from sbxtui.mcp_server.params import Kind, Param
from sbxtui.mcp_server.reply import Reply
from sbxtui.mcp_server.tool import Effect, Tool, Toolset


async def events(call: Call) -> Reply:
    """The newest changes, or those after one that is known."""
    args, log = call.args, call.services.events
    subject, limit = args.text("name") or None, args.whole("limit", 50)
    if "after_seq" in args:
        found = await asyncio.to_thread(log.list, args.whole("after_seq"), limit=limit, subject=subject)
    else:
        found = await asyncio.to_thread(log.tail, limit, subject=subject)
    latest = found[-1].seq if found else args.whole("after_seq")
    return Reply({"events": [event_json(one) for one in found], "last_seq": latest})


TOOLS = (
    Tool(
        "sandbox_events",
        Toolset.OBSERVE,
        Effect.READS,
        "Who changed what, newest last: people, scripts and agents on this computer.",
        events,
        (
            Param("name", help="Of one sandbox, also of one that is gone"),
            Param("after_seq", Kind.WHOLE, "Only what came after this event", least=0),
            Param("limit", Kind.WHOLE, "How many at most (50)", least=1, most=500),
        ),
    ),
)
