"""Whether a call may begin: a person can have a client wait, be asked about its changes, or cut it off."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from sbxtui.core.clients import Allowed, Answer
from sbxtui.core.errors import PolicyDenied
from sbxtui.identity import own_identity
from sbxtui.mcp_server.params import Args
from sbxtui.mcp_server.tool import Tool
from sbxtui.mcp_server.wishes import wish
from sbxtui.store.doorbell import Listener
from sbxtui.wiring import Services

# How long a call waits for a person to let its client go on.
_PAUSED_S = 30.0
_TELL_EVERY_S = 5.0

Tell = Callable[[str], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Wanted:
    """A call that would begin: `tell` says to its client why it waits."""

    tool: Tool
    args: Args
    tell: Tell


class Standing:
    """What a person lets one client do.

    Every call asks, so the store is read only after its doorbell rang: whoever commits rings before going on, so that
    what was said before a call came counts for that call.
    """

    def __init__(self, services: Services) -> None:
        self.services = services
        self._bell: Listener | None = None
        self._known: Allowed | None = None

    async def watch(self) -> None:
        """Keep it known until a person cuts the client off."""
        async with Listener(self.services.settings.home) as bell:
            self._bell = bell
            while (allowed := await self._read()) is not Allowed.ENDED:
                self._known = allowed
                await bell.wait()
                self._known = None

    async def now(self) -> Allowed:
        """As of now."""
        if self._known is None or self._bell is None or self._bell.may_have_news:
            return await self._read()
        return self._known

    async def _read(self) -> Allowed:
        return await asyncio.to_thread(self.services.clients.allowed, self.services.actor)


async def admit(standing: Standing, wanted: Wanted) -> None:
    """Wait while a person has the client paused, and until one approves of what has to be approved.

    Raises:
        PolicyDenied: It was cut off, denied, or nobody answered in time; nothing was done.
    """
    allowed = await standing.now()
    if allowed is Allowed.PAUSED:
        # Who had it wait may want to be asked from now on.
        allowed = await _resumed(standing)
    if allowed is Allowed.ENDED:
        raise _cut_off()
    is_asking = allowed is Allowed.ASKING and wanted.tool.changes(wanted.args)
    if is_asking or wanted.tool.is_obliged(wanted.args):
        await _approved(standing, wanted)


async def _resumed(standing: Standing) -> Allowed:
    deadline_s = _now_s() + _PAUSED_S
    async with Listener(standing.services.settings.home) as bell:
        while (allowed := await standing.now()) is Allowed.PAUSED:
            if _now_s() > deadline_s:
                raise PolicyDenied("a person has paused this client; nothing was done", hint="wait, then call again")
            await bell.wait(max(0.0, deadline_s - _now_s()))
    return allowed


async def _approved(standing: Standing, wanted: Wanted) -> None:
    """Park the call until it is answered."""
    services = standing.services
    wait_s = services.settings.mcp_approval_timeout_ms / 1000
    deadline_s = _now_s() + wait_s
    ask = partial(services.clients.approvals.ask, wait_s=wait_s)
    async with Listener(services.settings.home) as bell:
        words = (services.actor, str(own_identity()), wanted.tool.name, wish(wanted.args))
        number = await asyncio.to_thread(ask, *words)
        try:
            while not await _is_approved(standing, wanted, number):
                if _now_s() >= deadline_s:
                    raise _unanswered(number, wait_s)
                await wanted.tell(f"call {number} waits until a person approves it: sbx mcp approve {number}")
                await bell.wait(min(_TELL_EVERY_S, max(0.0, deadline_s - _now_s())))
        finally:
            await asyncio.shield(asyncio.to_thread(services.clients.approvals.over, number))


async def _is_approved(standing: Standing, wanted: Wanted, number: int) -> bool:
    """Whether a call may go on; what a person says of its client meanwhile answers, too, if only the client asks.

    Raises:
        PolicyDenied: It may not.
    """
    answer = await asyncio.to_thread(standing.services.clients.approvals.answer_of, number)
    allowed = await standing.now()
    if allowed is Allowed.ENDED:
        raise _cut_off()
    if answer is Answer.DENIED:
        raise PolicyDenied("a person denied this call; nothing was done", hint="ask what to do instead")
    is_trusted = allowed in (Allowed.RUNNING, Allowed.UNKNOWN) and not wanted.tool.is_obliged(wanted.args)
    return answer is Answer.APPROVED or is_trusted


def _cut_off() -> PolicyDenied:
    return PolicyDenied("a person has cut this client off; nothing was done", hint="ask before connecting anew")


def _unanswered(number: int, wait_s: float) -> PolicyDenied:
    return PolicyDenied(
        f"nobody approved this call (number {number}) within {wait_s:g} s; nothing was done",
        hint="ask the person to look at the dashboard or `sbx mcp ls`, then call again",
    )


def _now_s() -> float:
    return asyncio.get_running_loop().time()
