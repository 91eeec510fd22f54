"""What all calls of one server share: services for its clients, and the work that outlives a call."""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from sbxtui.core.clients import Allowed
from sbxtui.core.errors import SbxError
from sbxtui.core.text import harmless_line
from sbxtui.identity import own_identity
from sbxtui.mcp_server.call import Call, Client
from sbxtui.mcp_server.endings import Endings
from sbxtui.mcp_server.gate import Standing
from sbxtui.mcp_server.hostpaths import HostPaths
from sbxtui.mcp_server.options import Options
from sbxtui.mcp_server.params import Args
from sbxtui.mcp_server.tally import Tally
from sbxtui.mcp_server.turns import Turns
from sbxtui.recovery import recover
from sbxtui.settings import Settings
from sbxtui.wiring import Services

log = logging.getLogger(__name__)

_NO_NAME = "client"
_NAME_WIDTH = 40
# One client has one name; a server on HTTP has several. What calls itself something else each time is one of them.
_CLIENTS_MAX = 8

T = TypeVar("T")


class Face:
    """One server. Nothing is opened before the first call that needs it; the caller closes it."""

    def __init__(self, settings: Settings, options: Options) -> None:
        self.settings = settings
        self.options = options
        self.host_paths = HostPaths.of(settings)
        # Set when a person wants this server ended.
        self.cut_off = asyncio.Event()
        self._standings: dict[str, Standing] = {}
        self._greeted: dict[str, asyncio.Future[None]] = {}
        self._recovered: asyncio.Future[None] | None = None
        self._finished: set[asyncio.Task[Any]] = set()
        self._followed: set[asyncio.Task[Any]] = set()
        self.endings = Endings()
        self.turns = Turns()
        self._tally = Tally(self.later)

    @property
    def approve(self) -> list[str]:
        """The tools whose calls wait for a person, as the settings name them."""
        return self.settings.mcp_approve.replace(",", " ").split()

    async def services(self, client: str) -> Services:
        """The services that act as a client; the first one finishes what dead processes began."""
        return (await self.standing(client)).services

    async def standing(self, client: str) -> Standing:
        """What a client may do, with the services that act as it."""
        actor = self._actor(client)
        if actor not in self._standings:
            services = Services(self.settings, actor=actor, context_name=self.options.context)
            self._standings[actor] = Standing(services)
        if actor not in self._greeted:
            self._greeted[actor] = asyncio.ensure_future(self._greet(self._standings[actor], client))
        greeted = self._greeted[actor]
        try:
            await asyncio.shield(greeted)
        except SbxError:
            # The store may be there again for the next call.
            if self._greeted.get(actor) is greeted:
                del self._greeted[actor]
            raise
        return self._standings[actor]

    async def _greet(self, standing: Standing, client: str) -> None:
        services = standing.services
        allowed = Allowed.ASKING if self.options.asks else Allowed.RUNNING
        name = harmless_line(client, limit=_NAME_WIDTH)
        await asyncio.to_thread(lambda: services.clients.connected(services.actor, name, str(own_identity()), allowed))
        self.follow(self._watch(standing))
        if self._recovered is None:
            self._recovered = asyncio.ensure_future(self._recover(services))
        await asyncio.shield(self._recovered)

    def note_call(self, client: str, tool: str, code: str) -> None:
        """Remember what a client asked for and how that ended, for people to see; nothing of one never greeted."""
        standing = self._standings.get(self._actor(client))
        if standing is not None:
            self._tally.note(standing.services, tool, code)

    def call(self, args: Args, services: Services, client: Client) -> Call:
        """A call of a client, with what this server has for it."""
        return Call(args, services, self.host_paths, client, self.follow, self.later, self.endings)

    def _actor(self, client: str) -> str:
        actor = actor_of(client)
        is_one_too_many = actor not in self._standings and len(self._standings) >= _CLIENTS_MAX
        return actor_of(_NO_NAME) if is_one_too_many else actor

    async def _watch(self, standing: Standing) -> None:
        """Notice when a person cuts a client off."""
        await standing.watch()
        self.cut_off.set()

    async def _recover(self, services: Services) -> None:
        try:
            for words in await recover(services):
                log.info("%s", words)
        except SbxError as exc:
            # A backend that is not there is told by what needs it.
            log.info("nothing was recovered: %s", exc.message)

    def finish(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start something that is waited for before this server ends."""
        return _kept(work, self._finished)

    def follow(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start something that is cut when this server ends."""
        return _kept(work, self._followed)

    def later(self, work: Coroutine[Any, Any, object]) -> None:
        """`finish` for what nobody asks the result of; why it failed is logged."""
        self.finish(_logged(work))

    async def close(self) -> None:
        """Wait for what is to be finished, cut what is followed, and close the store."""
        self._tally.end()
        while self._finished:
            await asyncio.wait(set(self._finished))
        for task in self._followed:
            task.cancel()
        await asyncio.gather(*self._followed, return_exceptions=True)
        for services in (standing.services for standing in self._standings.values()):
            with suppress(SbxError):
                await asyncio.to_thread(services.clients.left, services.actor)
            services.close()


def _kept(work: Coroutine[Any, Any, T], kept: set[asyncio.Task[Any]]) -> asyncio.Task[T]:
    def forget(task: asyncio.Task[Any]) -> None:
        kept.discard(task)
        # Whoever waits for it gets its error; where nobody does any more, it is nobody's.
        if not task.cancelled():
            task.exception()

    task = asyncio.create_task(work)
    kept.add(task)
    task.add_done_callback(forget)
    return task


async def _logged(work: Coroutine[Any, Any, object]) -> None:
    try:
        await work
    except SbxError as exc:
        log.info("%s", exc.message)


def actor_of(client: str) -> str:
    """Who acts, as events show it: `mcp:claude-code#4121`."""
    name = re.sub(r"[^a-z0-9._-]+", "-", harmless_line(client).lower()).strip("-")[:_NAME_WIDTH]
    return f"mcp:{name or _NO_NAME}#{os.getpid()}"
