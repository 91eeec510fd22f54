"""The endpoint proxy: one TLS port per sandbox, every request checked, then raw bytes to and from the guest.

One connection carries requests one after another; each is parsed only as far as its head and framing, so that the next
one is found and checked too. The guest's connection is kept for the next request to the same port, for a moment only;
while it is, usual requests take the fast lane, which is closed to all while anything goes wrong on purpose.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from http import HTTPStatus

from sbxtui.core.heads import BadMessage, RequestHead, parse_request
from sbxtui.localcloud import gate
from sbxtui.localcloud.ceilings import Allowance, PacedSink, PacedSource
from sbxtui.localcloud.clientstream import ClientStream
from sbxtui.localcloud.duplex import Duplex
from sbxtui.localcloud.exchange import Exchange, Upstream, linger
from sbxtui.localcloud.gate import Passage, Refused
from sbxtui.localcloud.guestcalls import GuestCalls
from sbxtui.localcloud.keys import HomeKeys
from sbxtui.localcloud.lane import Begun, Lane, Passes
from sbxtui.localcloud.rehearsal.calls import Rehearsal
from sbxtui.localcloud.rehearsal.rules import ENDPOINT
from sbxtui.localcloud.relay import Cut, Sink, Source
from sbxtui.localcloud.shellsocket import ShellSocket
from sbxtui.localcloud.vms import Vm
from sbxtui.localcloud.waits import NotReachable
from sbxtui.localcloud.world import agent_port_of

log = logging.getLogger(__name__)

IDLE_CONNECTION_S = 350.0
# Servers close idle connections, some after two seconds; a request must not meet one that is just closing.
REUSE_WITHIN_S = 1.0


class Door:
    """What all connections of one sandbox's endpoint share."""

    def __init__(
        self, vm: Vm, keys: HomeKeys, rehearsal: Rehearsal, allowance: Allowance, *, has_ceilings: bool
    ) -> None:
        self.vm = vm
        self.allowance = allowance
        self.rehearsal = rehearsal
        self.has_ceilings = has_ceilings
        self.passes = Passes(self.address, self.passage_of)
        self._keys = keys

    @property
    def address(self) -> str:
        """As the API says it."""
        return f"127.0.0.1:{self.vm.record.endpoint_port}"

    @property
    def has_fast_lane(self) -> bool:
        """Whether nothing is to be looked at but the request itself."""
        return not self.has_ceilings and self.rehearsal.book.is_empty

    def passage_of(self, request: RequestHead) -> Passage:
        """As `gate.check`."""
        now = datetime.now(UTC) + self.rehearsal.book.clock_shift
        return gate.check(request, self.vm.record, self._keys, now=now)


class Connection:
    """One client connection of one endpoint."""

    def __init__(self, door: Door, client: ClientStream) -> None:
        self._vm = door.vm
        self._door = door
        self._source: Source = PacedSource(client, door.allowance) if door.has_ceilings else Source(client)
        self._writer = client
        self._upstream: Upstream[Duplex] | None = None
        self._is_one_too_many = False
        self._lane = Lane(
            client,
            self._vm.traffic,
            door.passes,
            is_open=lambda: door.has_fast_lane,
            idle_s=IDLE_CONNECTION_S,
            reuse_within_s=REUSE_WITHIN_S,
        )

    async def serve(self) -> None:
        """Answer requests until either side has enough. Nothing a client or guest does is raised."""
        self._is_one_too_many = not self._door.allowance.open_connection()
        try:
            while await self._serve_next():
                pass
        except Cut as exc:
            # What the guest did send is still delivered; the framing tells the client that more was to come.
            log.debug("%s: a message was cut: %s", self._vm.record.id, exc)
        except OSError as exc:
            log.debug("%s: a connection broke: %s", self._vm.record.id, exc)
            self._writer.abort()
        finally:
            self._door.allowance.close_connection()
            if self._upstream is not None:
                self._upstream.duplex.close()
            self._writer.close()

    async def _serve_next(self) -> bool:
        """Answer usual requests for as long as they come, or another one; whether more may follow."""
        if self._upstream is None or self._source.has_more or not self._door.has_fast_lane:
            return await self._serve_one()
        try:
            outcome = await self._lane.run(self._upstream)
            if isinstance(outcome, Begun):
                return await self._go_on(outcome)
        except BadMessage as exc:
            return await self._refuse_bad(exc)
        return outcome and await self._serve_one()

    async def _go_on(self, begun: Begun) -> bool:
        """Finish what was begun in the fast lane."""
        upstream, self._upstream = self._upstream, None
        assert upstream is not None
        return await self._exchange(parse_request(begun.head), begun.passage, upstream, begun.unsent)

    async def _serve_one(self) -> bool:
        """Answer one request; whether another may follow."""
        try:
            async with asyncio.timeout(IDLE_CONNECTION_S):
                raw = await self._source.read_head()
            if raw is None:
                return False
            request = parse_request(raw)
        except TimeoutError:
            return False
        except BadMessage as exc:
            return await self._refuse(exc.status, exc.why, is_kept=False)
        return await self._answer(request)

    async def _answer(self, request: RequestHead) -> bool:
        is_head = request.method == b"HEAD"
        is_kept = request.is_keep_alive and request.length == 0
        try:
            passage = await self._admitted(request)
            upstream = await self._connected(agent_port_of(self._vm.record) if passage.is_shell else passage.port)
        except Refused as exc:
            return await self._refuse(exc.status, exc.body, is_head=is_head, is_kept=is_kept)
        except (NotReachable, OSError) as exc:
            log.debug("%s: no way to the guest: %s", self._vm.record.id, exc)
            return await self._refuse(502, "", is_head=is_head, is_kept=is_kept)
        if passage.is_shell:
            # It dials for itself; this showed that there is a sandbox to dial, resumed where its policy says so.
            upstream.duplex.close()
            return await self._shell(request)
        try:
            return await self._exchange(request, passage, upstream)
        except BadMessage as exc:
            return await self._refuse_bad(exc, is_head=is_head)

    async def _admitted(self, request: RequestHead) -> Passage:
        rehearsal, record = self._door.rehearsal, self._vm.record
        if status := await rehearsal.before_request(record.id):
            raise Refused(status, gate.UNAUTHENTICATED if status == 403 else "")
        passage = self._door.passage_of(request)
        if self._is_one_too_many or not self._door.allowance.take_request():
            raise Refused(429)
        return passage

    async def _connected(self, port: int) -> Upstream[Duplex]:
        old, self._upstream = self._upstream, None
        if old is not None:
            if old.is_fresh(port, self._vm.traffic.epoch, within_s=REUSE_WITHIN_S):
                self._vm.traffic.touch()
                return old
            old.duplex.close()
        duplex = await self._vm.connect(port)
        return Upstream(port, self._vm.traffic.epoch, duplex, time.monotonic())

    async def _exchange(
        self, request: RequestHead, passage: Passage, upstream: Upstream[Duplex], unsent: bytes | None = None
    ) -> bool:
        traffic = self._vm.traffic

        def cut() -> None:
            upstream.duplex.close()
            self._writer.abort()

        traffic.add(cut)
        try:
            outcome = await Exchange(
                request,
                gate.passed_on(request, passage, self._door.address, str(uuid.uuid4())),
                self._source,
                self._sink(cut),
                upstream,
                touch=traffic.touch,
                answered_upgrade=lambda answer: gate.answered_upgrade(answer, passage),
                unsent=unsent,
            ).run()
        except BaseException:
            upstream.duplex.close()
            raise
        finally:
            traffic.remove(cut)
        if outcome.is_upstream_reusable:
            upstream.used_at = time.monotonic()
            self._upstream = upstream
        else:
            upstream.duplex.close()
        return outcome.is_client_kept

    async def _shell(self, request: RequestHead) -> bool:
        traffic = self._vm.traffic

        traffic.add(self._writer.abort)
        try:
            guest = GuestCalls(self._vm.connect, agent_port_of(self._vm.record))
            await ShellSocket(request, self._source, self._sink(self._writer.abort), guest, traffic.touch).serve()
        finally:
            traffic.remove(self._writer.abort)
        return False

    def _sink(self, cut: Callable[[], None]) -> Sink:
        cut_after = self._door.rehearsal.cut_after(ENDPOINT)
        if cut_after is None and not self._door.has_ceilings:
            return self._writer
        return PacedSink(self._writer, self._door.allowance, cut_after, cut)

    async def _refuse_bad(self, message: BadMessage, *, is_head: bool = False) -> bool:
        log.debug("%s: %s", self._vm.record.id, message.why)
        body = "" if message.status == 502 else message.why
        return await self._refuse(message.status, body, is_head=is_head, is_kept=False)

    async def _refuse(self, status: int, body: str, *, is_kept: bool, is_head: bool = False) -> bool:
        content = body.encode()
        lines = [
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
            f"x-amzn-requestid: {uuid.uuid4()}",
            "Cache-Control: private,no-store",
            "Content-Type: text/plain; charset=utf-8",
            f"Content-Length: {len(content)}",
            *([] if is_kept else ["Connection: close"]),
        ]
        self._writer.write("\r\n".join([*lines, "", ""]).encode() + (b"" if is_head else content))
        await self._writer.drain()
        if not is_kept:
            await linger(self._source, self._writer)
        return is_kept
