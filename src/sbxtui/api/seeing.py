"""What a sandbox says and uses, what it costs, and how long it lives."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from sbxtui import arguments
from sbxtui.api.opened import Opened
from sbxtui.core.errors import SandboxNotFound, UsageError

if TYPE_CHECKING:
    from sbxtui.core.life import Bill
    from sbxtui.core.logs import LogLine, LogQuery
    from sbxtui.core.usage import Usage


class Seeing(Opened):
    """A sandbox that can be looked at. Budgets and keeping awake are the runner's: they go on when the program ends."""

    async def metrics(self) -> Usage:
        """What it uses now: processors over the last half second, memory, disk, network, processes.

        Raises:
            Conflict: It is suspended. GuestUnreachable: It does not answer. Unsupported: Its guest does not tell.
        """
        return await self._services.metrics.sample(self._row)

    async def last_hour(self) -> list[Usage]:
        """What programs and people of this machine saw of that in the last hour, oldest first; it is not asked."""
        return await self._services.metrics.last_hour(self._row)

    async def logs(
        self,
        *,
        tail: int | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        grep: str = "",
        job: str = "",
        source: str = "guest",
    ) -> list[LogLine]:
        """The lines that are there, oldest first, with their time and job.

        Args:
            tail: The last so many; None for all that is kept.
            since: Said after it; a time with its zone.
            until: Said before it.
            grep: A regular expression that a line must hold.
            job: Of this job, by its id or the beginning; `guest` for what the guest tells of itself.
            source: `guest`, or `cloudwatch` or `build` for what the platform keeps.

        Raises:
            Conflict: It is suspended. NotFound: The platform keeps no such log; the hint says what is missing.
        """
        lines: list[LogLine] = []
        await self._read(_query(tail, since, until, grep, job, source), lines.append)
        return lines

    async def follow_logs(
        self, on_line: Callable[[LogLine], object], *, tail: int | None = 0, grep: str = "", job: str = ""
    ) -> None:
        """Call `on_line` with each line as it is said, over suspends and lost connections, without losing one.

        Returns when the sandbox has ended, or `on_line` returns something true; following keeps nothing awake.

        Args:
            on_line: What to do with a line.
            tail: Of what is there, the last so many first; None for all.
            grep: As in `logs`.
            job: As in `logs`.
        """
        await self._read(_query(tail, None, None, grep, job, "guest", is_following=True), on_line)

    async def _read(self, query: LogQuery, on_line: Callable[[LogLine], object]) -> None:
        services = self._services
        source = services.logs if query.source == "guest" else services.cloud_logs
        async with aclosing(source.lines(self._row, query)) as lines:
            async for line in lines:
                if on_line(line) and query.is_following:
                    return

    async def cost(self) -> Bill:
        """What it has cost so far, costs an hour and until its cap (`.cost`), and what becomes of it (`.life`).

        For the local cloud, which costs nothing, what AWS would charge: `.is_paid` is false then.

        Raises:
            ControlUnavailable: Whether it runs or sleeps cannot be asked. SandboxNotFound: It is forgotten here.
        """
        services = self._services
        inventory = await services.inventories.live(services.context)
        if inventory.error is not None:
            raise inventory.error
        found = [one for one in inventory.sandboxes if one.id == self._row.id]
        if not found:
            raise SandboxNotFound(f"`{self.name}` no longer exists")
        return (await services.costs.of(services.context, found))[0]

    async def set_budget(self, usd: float | None, *, terminates: bool = False) -> None:
        """Suspend it when it has cost so much in all, with a warning at 80 %; needs this machine to be up.

        Args:
            usd: The amount; None takes the budget back.
            terminates: End it instead.

        Raises:
            UsageError: An amount that cannot be.
        """
        if usd is None:
            await self._services.budgets.clear(self._row)
            return
        await self._services.budgets.set(self._row, arguments.amount("usd", usd), terminates=terminates)

    async def keep_awake(
        self,
        until: datetime | timedelta | None = None,
        *,
        deadline: timedelta = timedelta(hours=8),
        budget_usd: float | None = None,
    ) -> None:
        """Keep it from being suspended for want of traffic; what sleeps already is not woken.

        Args:
            until: A time with its zone, or a span from now; None: while a job runs.
            deadline: In any case no longer.
            budget_usd: Nor for more than this.

        Raises:
            Conflict: No job runs, and one was to be waited for. UsageError: That time is over, or has no zone.
        """
        from sbxtui.services.awake import AwakeSpec

        now = datetime.now(UTC)
        if isinstance(until, timedelta):
            until = now + until
        most_usd = None if budget_usd is None else arguments.amount("budget_usd", budget_usd)
        spec = AwakeSpec(_zoned("until", until), now + deadline, most_usd)
        await self._services.keep_awake.start(self._row, spec)

    async def let_sleep(self) -> bool:
        """Keep it awake no longer; returns whether anything did."""
        return await self._services.keep_awake.stop(self._row)


def _query(
    tail: int | None,
    since: datetime | None,
    until: datetime | None,
    grep: str,
    job: str,
    source: str,
    *,
    is_following: bool = False,
) -> LogQuery:
    from sbxtui.core.logs import LogQuery, LogSource, parse_grep

    if source not in list(LogSource):
        raise UsageError(f"source={source!r} is not possible", hint="one of " + ", ".join(LogSource))
    if tail is not None and (not isinstance(tail, int) or tail < 0):
        raise UsageError(f"tail={tail!r} is not possible", hint="a whole number from 0 on, or None for all")
    return LogQuery(
        source=LogSource(source),
        since=_zoned("since", since),
        until=_zoned("until", until),
        tail=tail,
        grep=parse_grep(grep),
        job=job,
        is_following=is_following,
    )


def _zoned(name: str, instant: datetime | None) -> datetime | None:
    if instant is not None and instant.tzinfo is None:
        raise UsageError(f"{name}={instant!r} has no zone", hint="datetime.now(UTC), or .astimezone() of it")
    return instant
