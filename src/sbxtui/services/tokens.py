"""Endpoint tokens: shared through the store, minted by one process at a time, renewed at half their life."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial

from sbxtui.core.errors import SbxError, StoreUnwritable
from sbxtui.core.model import Context, EndpointToken, SandboxId
from sbxtui.identity import own_identity
from sbxtui.services.planes import ControlPlanes
from sbxtui.settings import Settings
from sbxtui.store.db import Store
from sbxtui.store.leases import Leases
from sbxtui.store.tokens import Tokens, get_or_mint
from sbxtui.store.turns import taken

log = logging.getLogger(__name__)

# How long one process may take to renew before another tries.
_RENEW_LIFE = timedelta(seconds=30)
_RENEW = "renew"


class TokenService:
    """Hands out tokens for ports of sandboxes of one context: the guest's, where none is named."""

    def __init__(self, settings: Settings, context: Context, planes: ControlPlanes, store: Store) -> None:
        self._store = store
        self._ports = (settings.agent_port,)
        self._context = context
        self._planes = planes
        self._tokens = Tokens(store)
        self._leases = Leases(store)

    def source(self, sandbox_id: SandboxId, ports: tuple[int, ...] = ()) -> SandboxTokens:
        """A source of tokens for one sandbox, for as long as a client lives."""
        return SandboxTokens(self, sandbox_id, ports)

    async def token(self, sandbox_id: SandboxId, ports: tuple[int, ...] = ()) -> EndpointToken:
        """A token that opens those ports.

        The shared one while it is in the first half of its life. Later a new one; when that cannot be had, the old one
        as long as it holds.

        Raises:
            SbxError: There is none and none can be minted.
        """
        ports = ports or self._ports
        shared = await asyncio.to_thread(self._tokens.get, self._context.name, sandbox_id, ports)
        if shared is None:
            return await self._mint(sandbox_id, ports)
        half_life = shared.minted_at + (shared.expires_at - shared.minted_at) / 2
        if datetime.now(UTC) < half_life:
            return shared
        return await self._renew(shared)

    async def replace(self, refused: EndpointToken) -> EndpointToken:
        """A token other than one the endpoint refused."""
        if await asyncio.to_thread(self._tokens.drop, self._context.name, refused):
            return await self._mint(refused.sandbox_id, refused.ports)
        # The store still holds the refused one and would give it out again.
        plane = await self._planes.open(self._context)
        return await plane.mint_token(refused.sandbox_id, refused.ports)

    async def _renew(self, shared: EndpointToken) -> EndpointToken:
        key, owner = f"{self._context.name}/{shared.sandbox_id}", str(own_identity())
        expires_at = datetime.now(UTC) + _RENEW_LIFE
        acquire = partial(self._leases.acquire, _RENEW, key, owner=owner, expires_at=expires_at)

        def release(is_mine: bool = True) -> None:
            if is_mine:
                with self._store.best_effort("a lease"):
                    self._leases.release(_RENEW, key, owner=owner)

        try:
            if not await taken(acquire, release):
                return shared
        except StoreUnwritable:
            return shared
        try:
            plane = await self._planes.open(self._context)
            token = await plane.mint_token(shared.sandbox_id, shared.ports)
            await asyncio.to_thread(self._tokens.put, self._context.name, token)
        except SbxError as exc:
            log.info("keeping the token of %s: %s", shared.sandbox_id, exc.message)
            return shared
        finally:
            await asyncio.shield(asyncio.to_thread(release))
        return token

    async def _mint(self, sandbox_id: SandboxId, ports: Sequence[int]) -> EndpointToken:
        async def mint() -> EndpointToken:
            plane = await self._planes.open(self._context)
            return await plane.mint_token(sandbox_id, ports)

        return await get_or_mint(
            self._store, self._context.name, sandbox_id, ports, owner=str(own_identity()), mint=mint
        )


class SandboxTokens:
    """The token source of one guest client."""

    def __init__(self, service: TokenService, sandbox_id: SandboxId, ports: tuple[int, ...]) -> None:
        self._service = service
        self._sandbox_id = sandbox_id
        self._ports = ports
        self._last: EndpointToken | None = None

    async def token(self, *, refresh: bool = False) -> str:
        """The token to send now; `refresh` says that the endpoint refused the last one."""
        if refresh and self._last is not None:
            self._last = await self._service.replace(self._last)
        else:
            self._last = await self._service.token(self._sandbox_id, self._ports)
        return self._last.value
