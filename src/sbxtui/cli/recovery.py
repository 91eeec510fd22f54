"""Before a verb looks or acts: finish what a dead process began. Free when nothing is left behind."""

from __future__ import annotations

import asyncio

from sbxtui.cli.call import Call
from sbxtui.services.leftovers import needs_recovery


async def recover(call: Call) -> None:
    """Finish launches and one-shots of dead processes in this context, and say so."""
    rows = await asyncio.to_thread(call.services.registry.list, call.services.context.name)
    if not needs_recovery(rows):
        return
    call.out.progress("finishing what an interrupted sbx began")
    for row in await call.services.one_shots.recover():
        call.out.note(f"note: `{row.name}` was being launched when its sbx died; it is ready now")
