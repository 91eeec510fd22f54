"""Logs of sandboxes: followed without a lost line over every cut, and without keeping anything awake.

A stream that follows is silent while nothing is said, which costs the sandbox nothing, so it stays open for as long as
it lasts. Once it is cut, the sandbox is asked again only where that changes nothing: not while it sleeps, and not in
the second half of its idle window.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import UTC, datetime

from sbxtui.core.errors import Conflict, GuestUnreachable, SandboxNotFound, Throttled, Unsupported
from sbxtui.core.logs import LineMaker, LogChunk, LogLine, LogQuery, LogSource, Tail
from sbxtui.core.model import Context, Registration, SandboxState
from sbxtui.core.usage import may_look
from sbxtui.guest.logs import Place
from sbxtui.guest.transport import Backoff
from sbxtui.home import Home
from sbxtui.services.guests import Guests, speaks_v1
from sbxtui.services.jobs import Jobs
from sbxtui.services.planes import ControlPlanes
from sbxtui.store.doorbell import Listener

_PATIENCE_S = 30.0
_LOOK_EVERY_S = 2.0
_ANEW = "the sandbox was started anew; what was said before is gone"


class Logs:
    """The guests' own logs of the sandboxes of one context."""

    def __init__(self, home: Home, context: Context, planes: ControlPlanes, guests: Guests, jobs: Jobs) -> None:
        self._home = home
        self._context = context
        self._planes = planes
        self._guests = guests
        self._jobs = jobs

    async def lines(
        self, row: Registration, query: LogQuery, *, is_asked: bool = True
    ) -> AsyncGenerator[LogLine, None]:
        """The lines that are there, oldest first, then, when following, each as it comes; close it to stop.

        A sandbox that was started anew has a new log: that is told as a gap. One that ends, ends what follows it.

        Args:
            row: Which sandbox.
            query: Which lines.
            is_asked: Whether a person asks. Else a sandbox that is falling asleep is left alone from the beginning.

        Raises:
            Unsupported: Its image's guest keeps no log. Conflict: It does not run, and nobody follows.
            SandboxNotFound: It has ended, and nobody follows.
            GuestUnreachable: It runs, and does not answer for 30 s.
        """
        if speaks_v1(row):
            raise Unsupported(
                f"the image of `{row.name}` has an old guest, which keeps no log", hint="rebuild the image"
            )
        reading = _Reading(query)
        if query.is_following:
            async with aclosing(self._follow(row, reading, is_asked=is_asked)) as followed:
                async for line in followed:
                    yield line
            return
        state = await self._guests.state(row)
        if state is not SandboxState.RUNNING:
            raise Conflict(
                f"`{row.name}` is {state.lower()}", hint=f"`sbx start {row.name}` resumes it, and its log is all there"
            )
        async with aclosing(self._read(row, reading)) as found:
            async for line in found:
                yield line
        for line in reading.rest():
            yield line

    async def _read(self, row: Registration, reading: _Reading) -> AsyncGenerator[LogLine, None]:
        query = reading.query
        is_first = not reading.place.log
        async with self._guests.connect(row) as guest:
            pieces = guest.logs.read(
                reading.place,
                is_following=query.is_following,
                since=query.since if is_first else None,
                # Lines that are not wanted count for the guest.
                tail=query.tail if is_first and query.wants_all else None,
            )
            async with aclosing(pieces):
                async for piece in pieces:
                    for line in reading.take(piece):
                        yield line

    async def _follow(self, row: Registration, reading: _Reading, *, is_asked: bool) -> AsyncGenerator[LogLine, None]:
        backoff = Backoff(_PATIENCE_S)
        while await self._may_ask(row, is_asked=is_asked):
            is_asked = False
            before = reading.place
            failure = GuestUnreachable(f"`{row.name}`: the stream of its log ended")
            try:
                async with aclosing(self._read(row, reading)) as found:
                    async for line in found:
                        yield line
            except (GuestUnreachable, Throttled) as exc:
                failure = exc if isinstance(exc, GuestUnreachable) else failure
            except (Conflict, SandboxNotFound):
                continue
            if reading.place != before:
                backoff.reset()
            await backoff.wait(failure)
        for line in reading.rest():
            yield line

    async def _may_ask(self, row: Registration, *, is_asked: bool) -> bool:
        """Wait until asking the sandbox keeps it no more awake than it is; False when it has ended."""
        has_slept = is_asked
        async with Listener(self._home) as bell:
            while True:
                try:
                    state = await self._guests.state(row)
                except SandboxNotFound:
                    return False
                if state is not SandboxState.RUNNING:
                    has_slept = True
                # Whoever woke it did so a moment ago; and what a job says in the meantime keeps it awake anyway.
                elif has_slept or await self._is_at_work(row):
                    return True
                await bell.wait(_LOOK_EVERY_S)

    async def _is_at_work(self, row: Registration) -> bool:
        jobs = await self._jobs.known(row.context, row.id)
        scale = self._planes.time_scale(self._context)
        return any(not job.is_over for job in jobs) or may_look(row.request.idle, jobs, datetime.now(UTC), scale=scale)


class _Reading:
    """How far one reader is, over all its connections, and what of it is wanted."""

    def __init__(self, query: LogQuery) -> None:
        self.query = query
        self.place = Place()
        self._maker = LineMaker()
        self._tail = Tail(query.tail)
        # Where the log ended when it was first asked for; what comes behind is new.
        self._present_end: int | None = None
        self._is_live = query.tail is None

    def take(self, piece: Place | LogChunk) -> list[LogLine]:
        """The lines to show of a piece."""
        lines: list[LogLine] = []
        if isinstance(piece, Place):
            if self.place.log and piece.log != self.place.log:
                lines = [*self._maker.rest(), LogLine(datetime.now(UTC), LogSource.GUEST, "gap", _ANEW)]
            self.place = piece
            self._present_end = piece.total if self._present_end is None else self._present_end
        else:
            lines = list(self._maker.lines(piece))
            self.place = Place(self.place.log, piece.cursor, self.place.total)
        return self._chosen(lines)

    def _chosen(self, lines: list[LogLine]) -> list[LogLine]:
        wanted = [line for line in lines if self.query.wants(line)]
        if self._is_live:
            return wanted
        for line in wanted:
            self._tail.add(line)
        if self._present_end is None or self.place.cursor < self._present_end or not self.query.is_following:
            return []
        self._is_live = True
        return self._tail.kept()

    def rest(self) -> list[LogLine]:
        """At the end: what has no end, and what was held for its place from the end."""
        rest = [line for line in self._maker.rest() if self.query.wants(line)]
        if self._is_live:
            return rest
        for line in rest:
            self._tail.add(line)
        return self._tail.kept()
