"""Before a verb looks or acts: tell what opening the store changed, adopt what `asb` left, finish what dead ones began.

Free when there is nothing of it.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from sbxtui.cli.call import Call
from sbxtui.services.leftovers import needs_recovery


async def recover(call: Call) -> None:
    """Finish launches and one-shots of dead processes in this context, and say so."""
    if notice := call.services.store.notice:
        call.out.note(f"note: {notice.message}\n{notice.hint}")
    with call.services.store.best_effort("what an interrupted sbx or asb left"):
        await _recover(call)


async def _recover(call: Call) -> None:
    for words in await asyncio.to_thread(_adopt_from_seed, call):
        call.out.note(f"note: {words}")
    rows = await asyncio.to_thread(call.services.registry.list, call.services.context.name)
    if not needs_recovery(rows, datetime.now(UTC)):
        return
    call.out.progress("finishing what an interrupted sbx began")
    for row in await call.services.one_shots.recover():
        call.out.note(f"note: `{row.name}` was being launched when its sbx died; it is ready now")


def _adopt_from_seed(call: Call) -> list[str]:
    """Take over names and outputs of `asb` into an AWS context, once; returns what to tell."""
    report = call.services.adopt_seed()
    adopted = [*report.names, *report.outputs]
    return [*report.notices, *([f"adopted from asb: {', '.join(adopted)}"] if adopted else [])]
