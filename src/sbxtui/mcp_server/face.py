"""What all calls of one server share: services for its clients, and the work that outlives a call."""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from sbxtui.core.errors import PolicyDenied, SbxError
from sbxtui.core.text import harmless_line
from sbxtui.identity import own_identity
from sbxtui.mcp_server.hostpaths import HostPaths
from sbxtui.mcp_server.options import Options
from sbxtui.recovery import recover
from sbxtui.settings import Settings
from sbxtui.store.clients import Allowed
from sbxtui.store.doorbell import Listener
from sbxtui.wiring import Services

log = logging.getLogger(__name__)

_NO_NAME = "client"
_NAME_WIDTH = 40
# One client has one name; a server on HTTP has several. What calls itself something else each time is one of them.
_CLIENTS_MAX = 8
# How long a call waits for a person to let it go on.
_PAUSED_S, _LOOK_S = 30.0, 0.25

T = TypeVar("T")


class Face:
    """One server. Nothing is opened before the first call that needs it; the caller closes it."""

    def __init__(self, settings: Settings, options: Options) -> None:
        self.settings = settings
        self.options = options
        self.host_paths = HostPaths.of(settings)
        # Set when a person wants this server ended.
        self.cut_off = asyncio.Event()
        self._services: dict[str, Services] = {}
        self._recovered: asyncio.Future[None] | None = None
        self._finished: set[asyncio.Task[Any]] = set()
        self._followed: set[asyncio.Task[Any]] = set()

    async def services(self, client: str) -> Services:
        """The services that act as a client; the first one finishes what dead processes began."""
        actor = self._actor(client)
        if actor not in self._services:
            self._services[actor] = Services(self.settings, actor=actor, context_name=self.options.context)
            await asyncio.to_thread(self._greet, self._services[actor], client)
            self.follow(self._watch(self._services[actor]))
        services = self._services[actor]
        if self._recovered is None:
            self._recovered = asyncio.ensure_future(self._recover(services))
        await asyncio.shield(self._recovered)
        return services

    def _greet(self, services: Services, client: str) -> None:
        services.clients.connected(services.actor, harmless_line(client, limit=_NAME_WIDTH), str(own_identity()))

    async def admit(self, services: Services) -> None:
        """Wait while a person has a client paused.

        Raises:
            PolicyDenied: It was cut off, or is paused for too long.
        """
        deadline_s = asyncio.get_running_loop().time() + _PAUSED_S
        while (allowed := await asyncio.to_thread(services.clients.allowed, services.actor)) is Allowed.PAUSED:
            if asyncio.get_running_loop().time() > deadline_s:
                raise PolicyDenied("a person has paused this client; nothing was done", hint="wait, then call again")
            await asyncio.sleep(_LOOK_S)
        if allowed is Allowed.ENDED:
            raise PolicyDenied("a person has cut this client off; nothing was done", hint="ask before connecting anew")

    async def note_call(self, client: str, tool: str, code: str) -> None:
        """Write down what a client asked for and how that ended, for people to see; nothing of one never greeted."""
        services = self._services.get(self._actor(client))
        if services is not None:
            await asyncio.to_thread(services.clients.called, services.actor, tool, code)

    def _actor(self, client: str) -> str:
        actor = actor_of(client)
        is_one_too_many = actor not in self._services and len(self._services) >= _CLIENTS_MAX
        return actor_of(_NO_NAME) if is_one_too_many else actor

    async def _watch(self, services: Services) -> None:
        """Notice when a person cuts a client off."""
        async with Listener(self.settings.home) as bell:
            while await asyncio.to_thread(services.clients.allowed, services.actor) is not Allowed.ENDED:
                await bell.wait()
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
        """Wait for what is to be finished, and close the store."""
        while self._finished:
            await asyncio.wait(set(self._finished))
        for services in self._services.values():
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
