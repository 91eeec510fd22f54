"""Who waits until somebody was told how a command ended."""

from __future__ import annotations

import asyncio


class Endings:
    """The commands of one server whose end is still to be told."""

    def __init__(self) -> None:
        self._expected: dict[str, asyncio.Event] = {}

    def expect(self, job_id: str) -> None:
        """A command has begun whose end somebody may have to be told of, maybe before it is known here."""
        self._expected[job_id] = asyncio.Event()

    async def wait(self, job_id: str) -> None:
        """Until an expected end is told; at once if it was already."""
        await self._expected[job_id].wait()

    def told(self, job_id: str) -> None:
        """It was; nothing where it is not expected."""
        if (event := self._expected.get(job_id)) is not None:
            event.set()

    def forget(self, job_id: str) -> None:
        """Nobody waits for it any more."""
        self._expected.pop(job_id, None)
