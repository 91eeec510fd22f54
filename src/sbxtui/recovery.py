"""What a face does before it first looks or acts: adopt what `asb` left, finish what dead processes began.

Free when there is nothing of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

from sbxtui.services.leftovers import needs_recovery
from sbxtui.wiring import Services


async def recover(services: Services, on_progress: Callable[[str], None] = lambda words: None) -> list[str]:
    """Finish launches and one-shots of dead processes in the services' context; returns what to tell about it."""
    words: list[str] = []
    with services.store.best_effort("what an interrupted sbx or asb left"):
        words += await asyncio.to_thread(_adopt_from_seed, services)
        rows = await asyncio.to_thread(services.registry.list, services.context.name)
        if needs_recovery(rows, datetime.now(UTC)):
            on_progress("finishing what an interrupted sbx began")
            for row in await services.one_shots.recover():
                words.append(f"`{row.name}` was being launched when its sbx died; it is ready now")
    return words


def _adopt_from_seed(services: Services) -> list[str]:
    """Take over names and outputs of `asb` into an AWS context, once; returns what to tell."""
    report = services.adopt_seed()
    adopted = [*report.names, *report.outputs]
    return [*report.notices, *([f"adopted from asb: {', '.join(adopted)}"] if adopted else [])]
