"""One checked request on its way to a guest and its response on the way back; both at once: guests may answer early."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

from sbxtui.core.bodies import framing_of
from sbxtui.core.heads import BadMessage, Head, RequestHead, ResponseHead, parse_response
from sbxtui.localcloud.duplex import CHUNK_BYTES, TwoWay
from sbxtui.localcloud.relay import Cut, EndedSink, Sink, Source, relay_body, relay_until_end, write_to

# After an early answer the client may still be sending; a connection closed under it could take the answer with it.
LINGER_S = 5.0
LINGER_BYTES = 64 << 20
_QUIET_S = 0.25
Way = TypeVar("Way", bound=TwoWay, covariant=True)


@dataclass(slots=True)
class Upstream(Generic[Way]):
    """A connection to one port of a sandbox; a suspend makes the traffic's epoch differ from its own."""

    port: int
    epoch: int
    duplex: Way
    used_at: float
    source: Source = field(init=False)

    def __post_init__(self) -> None:
        self.source = Source(self.duplex)

    def is_fresh(self, port: int, epoch: int, *, within_s: float) -> bool:
        """Whether the next request to `port` may take this connection."""
        is_recent = time.monotonic() - self.used_at < within_s
        return is_recent and (self.port, self.epoch) == (port, epoch) and self.duplex.is_quiet


@dataclass(frozen=True, slots=True)
class Outcome:
    """Which of the two connections may carry another request."""

    is_upstream_reusable: bool
    is_client_kept: bool


class Exchange:
    """`head` is what the guest gets of the request's; where it was sent already, with the whole body, `unsent` is what
    is left to send. `touch` is told of every byte, and `passed_on` makes of the answer's head what the client gets; its
    body goes through `sink`, if there is one, before the writer.
    """

    def __init__(
        self,
        request: RequestHead,
        head: Head,
        source: Source,
        writer: Sink,
        upstream: Upstream[TwoWay],
        *,
        touch: Callable[[], None],
        answered_upgrade: Callable[[Head], Head],
        passed_on: Callable[[Head], Head] = lambda head: head,
        sink: EndedSink | None = None,
        unsent: bytes | None = None,
    ) -> None:
        self._request = request
        self._head = head
        self._source = source
        self._writer = writer
        self._upstream = upstream
        self._touch = touch
        self._answered_upgrade = answered_upgrade
        self._passed_on = passed_on
        self._sink = sink
        self._unsent = unsent
        self._is_sent = False
        self._sending_over = asyncio.Event()
        self._has_answer_begun = False

    async def run(self) -> Outcome:
        """Carry it to its end.

        Raises:
            BadMessage: Nothing was answered yet, and the guest's answer (502) or the request's framing (400) is bad.
            Cut: The client went away, or an answer without a length broke off.
            OSError: The same, seen while writing.
        """
        sending = asyncio.create_task(self._send())
        receiving = asyncio.create_task(self._receive())
        try:
            await asyncio.wait({sending, receiving}, return_when=asyncio.FIRST_COMPLETED)
            if not receiving.done():
                return self._without_client(sending)
            response = receiving.result()
            if response is not None:
                await self._finish_sending(sending)
        finally:
            await _cancelled(sending, receiving)
        if response is None:
            await self._tunnel()
            return Outcome(False, False)
        if not self._is_sent:
            await linger(self._source, self._writer)
            return Outcome(False, False)
        is_kept = response.is_keep_alive and self._request.is_keep_alive
        return Outcome(is_kept and not self._upstream.source.has_more, is_kept)

    async def _finish_sending(self, sending: asyncio.Task[None]) -> None:
        """The guest answered early; give the client's body a moment to end, so that its connection can be kept."""
        over = asyncio.create_task(self._sending_over.wait())
        try:
            await asyncio.wait({sending, over}, timeout=LINGER_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await _cancelled(over)

    def _without_client(self, sending: asyncio.Task[None]) -> Outcome:
        error = sending.exception()
        if isinstance(error, BadMessage) and not self._has_answer_begun:
            raise error
        raise Cut("the client went away") from error

    async def _send(self) -> None:
        """Pass the request on, then watch for the client's end; ends only when the client has."""
        await self._to_guest(self._head.to_bytes() if self._unsent is None else self._unsent)
        framing = framing_of(self._request.length if self._unsent is None else 0)
        while not framing.is_done:
            data = await self._source.read(min(framing.wants, CHUNK_BYTES) or CHUNK_BYTES)
            if not data:
                raise Cut("the request ended in the middle")
            taken = framing.feed(data)
            if taken < len(data):
                self._source.give_back(data[taken:])
                data = data[:taken]
            self._touch()
            await self._to_guest(data)
        self._is_sent = True
        self._sending_over.set()
        await self._source.wait_end()

    async def _to_guest(self, data: bytes) -> None:
        """Send to the guest; to one that takes no more, for ever. It may have answered before: who receives knows."""
        try:
            await self._upstream.duplex.send(data)
        except OSError:
            self._sending_over.set()
            await asyncio.get_running_loop().create_future()

    async def _receive(self) -> ResponseHead | None:
        """Pass the answer on; None after a 101, when the connection is no longer HTTP."""
        while True:
            response = await self._next_head()
            if response.status == 101:
                await write_to(self._writer, self._answered_upgrade(response.head).to_bytes())
                return None
            self._writer.write(self._passed_on(response.head).to_bytes())
            self._has_answer_begun = True
            if response.is_interim:
                await self._writer.drain()
                continue
            await self._relay_answer(response)
            return response

    async def _next_head(self) -> ResponseHead:
        try:
            raw = await self._upstream.source.read_head()
            if raw is None:
                raise self._broken("the guest gave no answer")
            self._touch()
            response = parse_response(raw, self._request.method)
        except (OSError, Cut) as exc:
            raise self._broken("the guest closed the connection") from exc
        except BadMessage as exc:
            raise self._broken(exc.why) from exc
        if response.status == 101 and not self._request.wants_upgrade:
            raise self._broken("the guest switched protocols unasked")
        return response

    def _broken(self, why: str) -> Exception:
        return Cut(why) if self._has_answer_begun else BadMessage(502, why)

    async def _relay_answer(self, response: ResponseHead) -> None:
        try:
            await relay_body(
                self._upstream.source, self._sink or self._writer, framing_of(response.framing), self._touch
            )
        except Cut:
            # Without a length, the end of the connection is the end of the body.
            if response.framing != "close":
                raise
        if self._sink is not None:
            self._sink.finish()
        await self._writer.drain()

    async def _tunnel(self) -> None:
        """Raw bytes both ways until either side ends."""
        to_client = partial(write_to, self._writer)
        outward = asyncio.create_task(relay_until_end(self._source, self._to_guest, self._touch))
        inward = asyncio.create_task(relay_until_end(self._upstream.source, to_client, self._touch))
        try:
            done, _ = await asyncio.wait({outward, inward}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            await _cancelled(outward, inward)


async def linger(source: Source, writer: Sink) -> None:
    """Let the client read what was written: take and drop what it still sends until it is quiet, within limits."""
    await writer.drain()
    dropped = 0
    with contextlib.suppress(TimeoutError, OSError):
        async with asyncio.timeout(LINGER_S):
            while dropped < LINGER_BYTES:
                async with asyncio.timeout(_QUIET_S):
                    data = await source.read()
                if not data:
                    return
                dropped += len(data)


async def _cancelled(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
