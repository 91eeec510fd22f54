"""The endpoint proxy: one TLS port per sandbox, every request checked, then raw bytes to and from the guest.

One connection carries requests one after another; each is parsed only as far as its head and framing, so that the next
one is found and checked too. The guest's connection is kept for the next request to the same port, for a moment only.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from datetime import UTC, datetime
from http import HTTPStatus

from sbxtui.core.heads import BadMessage, RequestHead, parse_request
from sbxtui.localcloud import gate
from sbxtui.localcloud.duplex import abort
from sbxtui.localcloud.exchange import Exchange, Upstream, linger
from sbxtui.localcloud.gate import Passage, Refused
from sbxtui.localcloud.keys import HomeKeys
from sbxtui.localcloud.relay import WRITE_BUFFER_BYTES, Cut, Source
from sbxtui.localcloud.vms import NotReachable, Vm

log = logging.getLogger(__name__)

IDLE_CONNECTION_S = 350.0
# Servers close idle connections, some after two seconds; a request must not meet one that is just closing.
REUSE_WITHIN_S = 1.0


class Connection:
    """One client connection of one endpoint."""

    def __init__(self, vm: Vm, keys: HomeKeys, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._vm = vm
        self._keys = keys
        self._source = Source(reader)
        self._writer = writer
        self._upstream: Upstream | None = None
        writer.transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)

    async def serve(self) -> None:
        """Answer requests until either side has enough. Nothing a client or guest does is raised."""
        try:
            while await self._serve_one():
                pass
        except Cut as exc:
            # What the guest did send is still delivered; the framing tells the client that more was to come.
            log.debug("%s: a message was cut: %s", self._vm.record.id, exc)
        except OSError as exc:
            log.debug("%s: a connection broke: %s", self._vm.record.id, exc)
            abort(self._writer.transport)
        finally:
            if self._upstream is not None:
                self._upstream.duplex.close()
            self._writer.close()

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
            passage = gate.check(request, self._vm.record, self._keys, now=datetime.now(UTC))
            upstream = await self._connected(passage.port)
        except Refused as exc:
            return await self._refuse(exc.status, exc.body, is_head=is_head, is_kept=is_kept)
        except (NotReachable, OSError) as exc:
            log.debug("%s: no way to the guest: %s", self._vm.record.id, exc)
            return await self._refuse(502, "", is_head=is_head, is_kept=is_kept)
        try:
            return await self._exchange(request, passage, upstream)
        except BadMessage as exc:
            log.debug("%s: %s", self._vm.record.id, exc.why)
            return await self._refuse(exc.status, "" if exc.status == 502 else exc.why, is_head=is_head, is_kept=False)

    async def _connected(self, port: int) -> Upstream:
        old, self._upstream = self._upstream, None
        if old is not None:
            if old.is_fresh(port, self._vm.traffic.epoch, within_s=REUSE_WITHIN_S):
                self._vm.traffic.touch()
                return old
            old.duplex.close()
        duplex = await self._vm.connect(port)
        return Upstream(port, self._vm.traffic.epoch, duplex, time.monotonic())

    async def _exchange(self, request: RequestHead, passage: Passage, upstream: Upstream) -> bool:
        traffic = self._vm.traffic

        def cut() -> None:
            upstream.duplex.close()
            abort(self._writer.transport)

        traffic.add(cut)
        try:
            endpoint = f"127.0.0.1:{self._vm.record.endpoint_port}"
            outcome = await Exchange(
                request,
                gate.passed_on(request, passage, endpoint, str(uuid.uuid4())),
                self._source,
                self._writer,
                upstream,
                touch=traffic.touch,
                answered_upgrade=lambda answer: gate.answered_upgrade(answer, passage),
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
