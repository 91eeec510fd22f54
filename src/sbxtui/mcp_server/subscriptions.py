"""Telling clients that a resource changed, in both eras: by streams they open, and by addresses they name."""

from __future__ import annotations

import asyncio
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.server.session import ServerSession
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourceUpdated
from mcp_types import EmptyResult, SubscribeRequestParams, SubscriptionsListenRequestParams, UnsubscribeRequestParams
from mcp_types import SubscriptionsListenResult as Listened

from sbxtui.core.model import Event
from sbxtui.mcp_server.client import name_of
from sbxtui.mcp_server.face import Face
from sbxtui.mcp_server.resources import sandbox_path, spellings
from sbxtui.services.activity import follow_events

_Context = ServerRequestContext[Any, Any]


class Subscriptions:
    """Who wants to know of changes. The store is watched from the first of them on."""

    def __init__(self, face: Face) -> None:
        self._face = face
        self._bus = InMemorySubscriptionBus()
        self._listening = ListenHandler(self._bus)
        self._named: dict[str, ServerSession] = {}
        self._watching: asyncio.Task[None] | None = None
        self._beginning = asyncio.Lock()

    async def listen(self, context: _Context, params: SubscriptionsListenRequestParams) -> Listened:
        """Serve one stream, as newer clients open them."""
        await self._watch(name_of(context))
        return await self._listening(context, params)

    async def subscribe(self, context: _Context, params: SubscribeRequestParams) -> EmptyResult:
        """Note an address, as older clients name them."""
        await self._watch(name_of(context))
        self._named[params.uri] = context.session
        return EmptyResult()

    async def unsubscribe(self, context: _Context, params: UnsubscribeRequestParams) -> EmptyResult:
        """Forget an address."""
        self._named.pop(params.uri, None)
        return EmptyResult()

    async def _watch(self, client: str) -> None:
        async with self._beginning:
            if self._watching is not None:
                return
            services = await self._face.services(client)
            newest = await asyncio.to_thread(services.events.latest_seq)
            changes = follow_events(self._face.settings.home, services.events, after_seq=newest)
            self._watching = self._face.follow(self._tell(changes))

    async def _tell(self, changes: Any) -> None:
        async for batch in changes:
            for uri in changed(batch):
                await self._bus.publish(ResourceUpdated(uri))
                if (session := self._named.get(uri)) is not None:
                    await session.send_resource_updated(uri)


def changed(events: list[Event]) -> list[str]:
    """The addresses of what some events are about."""
    subjects = dict.fromkeys(event.subject for event in events if event.subject)
    paths = ["events", "sandboxes", *map(sandbox_path, subjects)]
    return [uri for path in paths for uri in spellings(path)]
