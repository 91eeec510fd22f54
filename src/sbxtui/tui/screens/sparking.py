"""What sandboxes used of late, and what keeps them awake: read from what this home has, so that nobody is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from textual import on
from textual.message import Message

from sbxtui.core.errors import SbxError
from sbxtui.core.life import KEEP_AWAKE
from sbxtui.tui.screens.alarming import Alarming
from sbxtui.tui.widgets.table import FleetTable
from sbxtui.tui.working import worker

_EVERY_S = 5.0


class LatelySeen(Message):
    """Sparklines of processors, and until when sandboxes are kept awake, both by the id of their sandbox."""

    def __init__(self, cpu: Mapping[str, str], awake: Mapping[str, str]) -> None:
        super().__init__()
        self.cpu = cpu
        self.awake = awake


class Sparking(Alarming):
    """Shows what others looked at, and what the runner does for sandboxes."""

    @worker(exclusive=True, group="cpu")
    async def follow_cpu(self) -> None:
        """Read it now and then; what has not changed is not drawn."""
        try:
            metrics = await asyncio.to_thread(lambda: self.services.metrics)
        except SbxError:
            return
        told: tuple[Mapping[str, str], Mapping[str, str]] = ({}, {})
        while True:
            seen = (await metrics.cpu_of_late(self.fleet.all), await asyncio.to_thread(self._kept_awake))
            if seen != told:
                told = seen
                self.post_message(LatelySeen(*seen))
            await asyncio.sleep(_EVERY_S)

    def _kept_awake(self) -> Mapping[str, str]:
        context = self.fleet.context
        if context is None:
            return {}
        try:
            links = self.services.links.list(KEEP_AWAKE, context.name)
        except SbxError:
            return self.fleet.awake
        if not links:
            return {}
        # Most homes keep nothing awake.
        from sbxtui.services.awake import until_words

        return {str(one.sandbox_id): until_words(one) for one in links if one.is_wanted}

    @on(LatelySeen)
    def lately_seen(self, message: LatelySeen) -> None:
        """Draw it."""
        is_other = message.awake != self.fleet.awake
        self.fleet.cpu, self.fleet.awake = message.cpu, message.awake
        if is_other:
            self.draw()
        else:
            self.query_one(FleetTable).show()
