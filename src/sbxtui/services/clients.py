"""Looking at the clients of our MCP servers, and saying what they may do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from sbxtui.core.clients import Allowed, Answer, Approval, McpClient
from sbxtui.core.errors import NotFound
from sbxtui.home import Home
from sbxtui.store.clients import Clients
from sbxtui.store.doorbell import LOOKING_POLL_S, Listener

# Nobody rings when a client dies, or a call's time is over.
_LOOK_S = 1.0


@dataclass(frozen=True, slots=True)
class ClientsView:
    """The clients that are connected, and their calls that wait for an answer, each oldest first."""

    clients: Sequence[McpClient] = ()
    waiting: Sequence[Approval] = ()


class ClientDesk:
    """The clients of one home, as a dashboard sees them; `actor` is who answers."""

    def __init__(self, home: Home, clients: Clients, actor: str) -> None:
        self._home = home
        self._clients = clients
        self._actor = actor

    async def follow(self) -> AsyncGenerator[ClientsView, None]:
        """How they are, whenever that is another way; ends only when closed."""
        seen = None
        async with Listener(self._home, poll_s=LOOKING_POLL_S) as bell:
            while True:
                found = await asyncio.to_thread(self._look)
                if found != seen:
                    yield (seen := found)
                await bell.wait(_LOOK_S)

    async def allow(self, client: McpClient, allowed: Allowed) -> None:
        """Let a client go on, wait, ask, or end."""
        await asyncio.to_thread(self._clients.allow, client, allowed, actor=self._actor)

    async def answer(self, approval: Approval, answer: Answer) -> None:
        """Let a call go on, or refuse it; one that waits no more has been told so."""
        with suppress(NotFound):
            await asyncio.to_thread(self._clients.approvals.answer, approval, answer, actor=self._actor)

    def _look(self) -> ClientsView:
        return ClientsView(self._clients.list(), self._clients.approvals.list())
