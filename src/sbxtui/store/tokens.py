"""Endpoint tokens shared by all processes of a home, and minted by one of them at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from sbxtui.core.errors import TimedOut
from sbxtui.core.model import EndpointToken, SandboxId
from sbxtui.core.values import dataclass
from sbxtui.store import leases
from sbxtui.store.codec import instant_of, instant_text
from sbxtui.store.db import Store, Transaction
from sbxtui.store.doorbell import LOOKING_POLL_S, Listener
from sbxtui.store.turns import taken

# How long a minter may take before somebody else tries: longer than one answer of a slow control plane.
MINT_LIFE = timedelta(seconds=30)
_LEASE = "mint"
_A_TOKEN = "an endpoint token"
# A token is given out while enough of it is left to open a connection with.
_MAX_MARGIN = timedelta(seconds=60)
_MARGIN_SHARE = 5


@dataclass(frozen=True, slots=True)
class MintTurn:
    """What `claim_mint` found: a usable token; or nobody mints and it `is_mine` to do; or neither, then wait."""

    token: EndpointToken | None
    is_mine: bool


class Tokens:
    """The endpoint tokens of a home. Values never leave this table but in an `EndpointToken`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def get(
        self, context: str, sandbox_id: str, ports: Sequence[int], now: datetime | None = None
    ) -> EndpointToken | None:
        """A token good for all `ports` (none: for any port) with enough life left; else None.

        Enough is a minute, or a fifth of the whole life of a token that never had five.
        """
        rows = self._store.rows(_SELECT, (context, sandbox_id))
        return _best(rows, ports, now or self._store.now())

    def put(self, context: str, token: EndpointToken) -> None:
        """Share a token with all processes; ends the turn of whoever minted it. Expired ones are swept out.

        A full disk keeps it from being shared, not from being used.
        """
        key = _ports_text(token.ports)
        with self._store.best_effort(_A_TOKEN), self._store.transaction() as transaction:
            transaction.execute("DELETE FROM tokens WHERE expires_at <= ?", (instant_text(transaction.now),))
            transaction.execute(
                "INSERT OR REPLACE INTO tokens VALUES (?, ?, ?, ?, ?, ?)",
                (
                    *(context, token.sandbox_id, key, token.value),
                    *(instant_text(token.minted_at), instant_text(token.expires_at)),
                ),
            )
            lease_key = _lease_key(context, token.sandbox_id, token.ports)
            transaction.execute("DELETE FROM leases WHERE kind = ? AND key = ?", (_LEASE, lease_key))

    def drop(self, context: str, token: EndpointToken) -> bool:
        """Forget exactly this token, because its endpoint refused it; a newer one of the same ports stays.

        Returns:
            False when a full disk kept it in the store.
        """
        with self._store.best_effort(_A_TOKEN), self._store.transaction() as transaction:
            transaction.execute(
                "DELETE FROM tokens WHERE context = ? AND sandbox_id = ? AND value = ?",
                (context, token.sandbox_id, token.value),
            )
            return True
        return False

    def claim_mint(self, context: str, sandbox_id: str, ports: Sequence[int], *, owner: str) -> MintTurn:
        """Look for a usable token and, if there is none, try to become the one process that mints it.

        A claim ends with `put`, with `release_mint`, with its process, or after 30 s. On a full disk nobody can claim,
        and everybody mints.
        """
        if token := self.get(context, sandbox_id, ports):
            return MintTurn(token, is_mine=False)
        with self._store.best_effort(_A_TOKEN), self._store.transaction() as transaction:
            return _claim(transaction, context, sandbox_id, ports, owner)
        return MintTurn(None, is_mine=True)

    def release_mint(self, context: str, sandbox_id: str, ports: Sequence[int], *, owner: str) -> None:
        """Let others mint, because this process could not."""
        with self._store.best_effort(_A_TOKEN), self._store.transaction() as transaction:
            leases.release(transaction, _LEASE, _lease_key(context, sandbox_id, ports), owner=owner)


async def get_or_mint(
    store: Store,
    context: str,
    sandbox_id: SandboxId,
    ports: Sequence[int],
    *,
    owner: str,
    mint: Callable[[], Awaitable[EndpointToken]],
    timeout_s: float = 60.0,
) -> EndpointToken:
    """A usable token: the shared one, or one minted by exactly one of all processes that ask at the same time.

    Args:
        store: The home's store.
        context: The sandbox's context.
        sandbox_id: Whose endpoint.
        ports: What it must open; none means any port.
        owner: This process, as the text of its `ProcessIdentity`.
        mint: Asks the control plane; its errors are raised here, and the next process in line tries.
        timeout_s: Seconds in all.

    Raises:
        TimedOut: No token in time.
    """
    tokens = Tokens(store)
    try:
        async with asyncio.timeout(timeout_s):
            turn = await _turn(tokens, context, sandbox_id, ports, owner)
            if turn.token is None and not turn.is_mine:
                turn = await _wait_for_turn(store, context, sandbox_id, ports, owner)
            if turn.token is not None:
                return turn.token
            return await _mint(tokens, context, sandbox_id, ports, owner, mint)
    except TimeoutError as exc:
        raise TimedOut(f"no endpoint token for `{sandbox_id}` within {timeout_s:g} s", hint="try again") from exc


async def _turn(tokens: Tokens, context: str, sandbox_id: SandboxId, ports: Sequence[int], owner: str) -> MintTurn:
    """`claim_mint` in a thread; a claim that nobody waits for any more is no claim."""

    def give_back(turn: MintTurn) -> None:
        if turn.is_mine:
            tokens.release_mint(context, sandbox_id, ports, owner=owner)

    return await taken(partial(tokens.claim_mint, context, sandbox_id, ports, owner=owner), give_back)


async def _wait_for_turn(
    store: Store, context: str, sandbox_id: SandboxId, ports: Sequence[int], owner: str
) -> MintTurn:
    tokens = Tokens(store)
    # A minter that is killed rings no bell, so each wait is short.
    async with Listener(store.home, poll_s=LOOKING_POLL_S) as listener:
        while True:
            turn = await _turn(tokens, context, sandbox_id, ports, owner)
            if turn.is_mine or turn.token is not None:
                return turn
            await listener.wait(LOOKING_POLL_S)


async def _mint(
    tokens: Tokens,
    context: str,
    sandbox_id: SandboxId,
    ports: Sequence[int],
    owner: str,
    mint: Callable[[], Awaitable[EndpointToken]],
) -> EndpointToken:
    try:
        token = await mint()
        await asyncio.shield(asyncio.to_thread(tokens.put, context, token))
    except BaseException:
        await asyncio.shield(asyncio.to_thread(tokens.release_mint, context, sandbox_id, ports, owner=owner))
        raise
    return token


_SELECT = "SELECT sandbox_id, ports, value, minted_at, expires_at FROM tokens WHERE context = ? AND sandbox_id = ?"


def _claim(transaction: Transaction, context: str, sandbox_id: str, ports: Sequence[int], owner: str) -> MintTurn:
    # Looked up again under the write lock: the minter before us may just have finished.
    token = _best(transaction.rows(_SELECT, (context, sandbox_id)), ports, transaction.now)
    if token is not None:
        return MintTurn(token, is_mine=False)
    leases.sweep(transaction, _LEASE)
    key = _lease_key(context, sandbox_id, ports)
    expires_at = transaction.now + MINT_LIFE
    return MintTurn(None, leases.acquire(transaction, _LEASE, key, owner=owner, expires_at=expires_at))


def _best(rows: Sequence[tuple[Any, ...]], ports: Sequence[int], now: datetime) -> EndpointToken | None:
    fitting = [token for token in map(_token_of, rows) if _opens(token, ports) and _has_life_left(token, now)]
    return max(fitting, key=lambda token: token.expires_at, default=None)


def _opens(token: EndpointToken, ports: Sequence[int]) -> bool:
    return not token.ports or (bool(ports) and set(ports) <= set(token.ports))


def _has_life_left(token: EndpointToken, now: datetime) -> bool:
    margin = min(_MAX_MARGIN, (token.expires_at - token.minted_at) / _MARGIN_SHARE)
    return token.expires_at - now > margin


def _lease_key(context: str, sandbox_id: str, ports: Sequence[int]) -> str:
    return f"{context}/{sandbox_id}/{_ports_text(ports)}"


def _ports_text(ports: Sequence[int]) -> str:
    return ",".join(str(port) for port in sorted(set(ports))) or "*"


def _token_of(row: tuple[Any, ...]) -> EndpointToken:
    sandbox_id, ports, value, minted_at, expires_at = row
    return EndpointToken(
        sandbox_id=SandboxId(sandbox_id),
        ports=() if ports == "*" else tuple(int(port) for port in ports.split(",")),
        value=value,
        minted_at=instant_of(minted_at),
        expires_at=instant_of(expires_at),
    )
