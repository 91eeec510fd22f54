"""Connections to one sandbox's endpoint: no more at once than its size allows, and the one used last goes first."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from sbxtui.guest.http1 import HttpError, HttpTimeout
from sbxtui.guest.pool import Address
from sbxtui.guest.upstream import Upstream

# Servers close idle connections, and a request must not meet one that is just closing.
_IDLE_S = 20.0
_WAIT_S = 30.0
_CONNECT_S = 10.0


class Upstreams:
    """The connections.

    Args:
        address: Of the endpoint.
        most: How many there may be at once; who wants more waits, in turn.
        revive: Called when nobody listens there: it may start again whoever should.
    """

    def __init__(self, address: Address, most: int, revive: Callable[[], Awaitable[None]] | None = None) -> None:
        self.most = most
        self._address = address
        self._revive = revive
        self._count = 0
        self._idle: list[Upstream] = []
        self._waiting: deque[asyncio.Future[Upstream | None]] = deque()
        self._sweep: asyncio.TimerHandle | None = None

    def idle(self) -> Upstream | None:
        """A connection that is open and free, if there is one."""
        oldest_s = asyncio.get_running_loop().time() - _IDLE_S
        while self._idle:
            upstream = self._idle.pop()
            if upstream.is_reusable and upstream.used_at_s >= oldest_s:
                return upstream
            self.drop(upstream)
        return None

    async def acquire(self) -> Upstream:
        """A connection, when there is one for us.

        Raises:
            HttpError: None could be made. HttpTimeout: All are in use.
        """
        if (found := self.idle()) is not None:
            return found
        if self._count < self.most:
            self._count += 1
        elif (handed := await self._turn()) is not None:
            return handed
        try:
            return await self._connect()
        except BaseException:
            self._free()
            raise

    def give_back(self, upstream: Upstream) -> None:
        """Its answer is whole; another request may have it."""
        if not upstream.is_reusable:
            self.drop(upstream)
            return
        upstream.release()
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(upstream)
                return
        self._idle.append(upstream)
        if self._sweep is None:
            self._sweep = asyncio.get_running_loop().call_later(_IDLE_S, self._drop_old)

    def drop(self, upstream: Upstream, *, is_gentle: bool = False) -> None:
        """It is of no further use.

        Args:
            is_gentle: What was written still goes out.
        """
        if is_gentle:
            upstream.finish()
        else:
            upstream.close()
        self._free()

    def close(self) -> None:
        """End those that nobody uses."""
        if self._sweep is not None:
            self._sweep.cancel()
        while self._idle:
            self.drop(self._idle.pop())

    def _free(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._count -= 1

    async def _turn(self) -> Upstream | None:
        """Wait for a connection, or for the right to make one (None)."""
        turn: asyncio.Future[Upstream | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout(_WAIT_S):
                return await turn
        except BaseException as exc:
            if turn.done() and not turn.cancelled():
                handed = turn.result()
                self._free() if handed is None else self.give_back(handed)
            if isinstance(exc, TimeoutError):
                raise HttpTimeout(f"all {self.most} connections that forwards may use are in use") from None
            raise

    def _drop_old(self) -> None:
        self._sweep = None
        oldest_s = asyncio.get_running_loop().time() - _IDLE_S
        for upstream in [one for one in self._idle if one.used_at_s <= oldest_s]:
            self._idle.remove(upstream)
            self.drop(upstream)
        if self._idle:
            self._sweep = asyncio.get_running_loop().call_later(_IDLE_S, self._drop_old)

    async def _connect(self) -> Upstream:
        loop, address = asyncio.get_running_loop(), self._address
        try:
            async with asyncio.timeout(_CONNECT_S):
                made = await loop.create_connection(
                    Upstream,
                    address.host,
                    address.port,
                    ssl=address.tls,
                    server_hostname=address.host if address.tls else None,
                )
        except TimeoutError:
            raise HttpTimeout("no connection in time") from None
        except (OSError, UnicodeError) as exc:
            if self._revive is not None and isinstance(exc, ConnectionRefusedError):
                await self._revive()
            raise HttpError(str(exc) or type(exc).__name__) from exc
        return made[1]
