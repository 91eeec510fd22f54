"""Before a verb looks or acts: tell what opening the store changed, and finish what dead processes began."""

from __future__ import annotations

from sbxtui import recovery
from sbxtui.cli.call import Call


async def recover(call: Call) -> None:
    """Finish launches and one-shots of dead processes in this context, and say so."""
    if notice := call.services.store.notice:
        call.out.note(f"note: {notice.message}\n{notice.hint}")
    for words in await recovery.recover(call.services, call.out.progress):
        call.out.note(f"note: {words}")
