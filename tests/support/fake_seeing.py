"""What a cloud in memory says and uses, behind the shape of the services that look at it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from sbxtui.core.errors import Conflict, SbxError
from sbxtui.core.logs import LogLine, LogQuery, LogSource
from sbxtui.core.model import Registration, Sandbox
from sbxtui.core.usage import Usage

GIB = 2**30


@dataclass
class FakeSeeing:
    """Logs, platform logs and metrics in one. `lines` are there; `more` wakes who follows; `asked` counts questions."""

    lines_there: list[LogLine] = field(default_factory=list)
    usage: Usage | None = None
    history: list[Usage] = field(default_factory=list)
    more: asyncio.Event = field(default_factory=asyncio.Event)
    asked: list[bool] = field(default_factory=list)

    async def lines(
        self, row: Registration, query: LogQuery, *, is_asked: bool = True
    ) -> AsyncGenerator[LogLine, None]:
        """As the services' own."""
        told = 0
        while True:
            while told < len(self.lines_there):
                line = self.lines_there[told]
                told += 1
                if query.source is line.source:
                    yield line
            self.more.clear()
            await self.more.wait()

    async def cpu_of_late(self, sandboxes: Sequence[Sandbox]) -> dict[str, str]:
        """As the service's own, of the first of them."""
        return {sandboxes[0].id: "  ▁▂▄▆█▇"} if self.history else {}

    async def last_hour(self, row: Registration) -> list[Usage]:
        """As the service's own."""
        return self.history

    async def follow(
        self, row: Registration, *, interval_s: float, is_asked: bool = True
    ) -> AsyncGenerator[Usage | None, None]:
        """As the service's own."""
        self.asked.append(is_asked)
        if self.usage is None:
            raise _asleep()
        yield self.usage
        await asyncio.Event().wait()


def _asleep() -> SbxError:
    return Conflict("`api` is suspended", hint="resume it with `sbx start api`")


def line(text: str, *, job: str = "j1", channel: str = "out", source: LogSource = LogSource.GUEST) -> LogLine:
    """A line of noon."""
    return LogLine(datetime(2026, 1, 31, 12, tzinfo=UTC), source, channel, text, job)


def busy_hour(at: datetime, *, count: int = 60) -> list[Usage]:
    """Samples up to an instant, one each five seconds: busier and busier."""
    return [
        Usage(
            at - timedelta(seconds=5 * (count - 1 - number)),
            cores=4.0,
            core_percents=(100.0, 60.0, 0.0, 12.0),
            cpu_percent=100.0 * (number + 1) / count,
            memory_bytes=GIB,
            memory_limit_bytes=2 * GIB,
            disk_free_bytes=7 * GIB,
            disk_limit_bytes=8 * GIB,
            received_bytes=number * 1000,
            sent_bytes=0,
            processes=7,
            load=(0.5, 0.25, 0.125),
            oom_kills=1,
        )
        for number in range(count)
    ]
