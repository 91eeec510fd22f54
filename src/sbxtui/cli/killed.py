"""Telling why a command was killed, when its sandbox's watchdog did it."""

from __future__ import annotations

import asyncio

from sbxtui.cli.call import Call
from sbxtui.core.kills import Kills
from sbxtui.core.model import ExecResult, SandboxId

KILLED = 128 + 9
_LOOKS, _LOOK_EVERY_S = 5, 0.1


class KillWatch:
    """What is killed in a sandbox from now on. Costs one small file; on AWS nothing is told."""

    def __init__(self, call: Call, sandbox_id: SandboxId) -> None:
        self._call = call
        self._sandbox_id = sandbox_id
        self._count_before = self._kills().count

    async def words(self, result: ExecResult) -> str:
        """What was killed, if the command ended as killed ones do; it is written down a moment after it was done."""
        if result.exit_code != KILLED or result.timed_out:
            return ""
        for _ in range(_LOOKS):
            kills = self._kills()
            if kills.count > self._count_before:
                return kills.words
            await asyncio.sleep(_LOOK_EVERY_S)
        return ""

    def _kills(self) -> Kills:
        return self._call.services.reasons.kills(self._call.services.context, self._sandbox_id)
