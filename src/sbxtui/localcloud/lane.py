"""The fast lane of an endpoint's connection: usual requests to a port that is connected already, without a task.

A task that wakes for each piece costs several times what is done with it. So while a request is whole, of a usual kind,
and passes, what the event loop tells of is acted upon at once. All else is left to the connection's task, which takes
over before a request (nothing of it was taken), or in the middle of one (see `Begun`). Who may pass is decided by the
same gate; its verdict is remembered, for clients say the same fields again and again, and holds until the token ends.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass

from sbxtui.core.bodies import Framing, framing_of
from sbxtui.core.heads import MAX_HEAD_BYTES, BadMessage, RequestHead, parse_request, parse_response
from sbxtui.core.remembered import Remembered
from sbxtui.localcloud import gate
from sbxtui.localcloud.clientstream import ClientStream
from sbxtui.localcloud.duplex import CHUNK_BYTES, Duplex
from sbxtui.localcloud.exchange import Upstream
from sbxtui.localcloud.gate import Passage, Refused
from sbxtui.localcloud.relay import Cut
from sbxtui.localcloud.streams import Traffic

_USUAL_LINE = re.compile(rb"(?!CONNECT )([A-Z]{1,32}) (?:/[\x21-\x7e\x80-\xff]*|\*) HTTP/1\.1")
_MAX_REMEMBERED, _MAX_REMEMBERED_BYTES = 64, 8_192
# Most answers are small, and a large buffer costs time to get.
_FIRST_BYTES = 16_384
_WHOLE_BYTES, _REST_S = 16_384, 0.02


@dataclass(frozen=True, slots=True)
class Pass:
    """What is known of requests with the same fields.

    Args:
        passage: Where they go.
        length: Of their body.
        fields: What the guest gets of them, up to the number of the request.
        until_s: When the token ends, in seconds since the epoch.
    """

    passage: Passage
    length: int
    fields: bytes
    until_s: float


class Passes:
    """The passes of one endpoint. `check` is the gate, which gives a passage or raises `Refused`."""

    def __init__(self, endpoint: str, check: Callable[[RequestHead], Passage]) -> None:
        self._endpoint = endpoint
        self._check = check
        self._known: dict[bytes, Pass] = {}

    def find(self, raw: bytes) -> tuple[Pass, bytes, bytes] | None:
        """The pass of a head, its first line and its method; None: it is not usual, or does not pass."""
        line_end = raw.find(b"\r\n")
        line = _USUAL_LINE.fullmatch(raw, 0, line_end)
        if line is None:
            return None
        fields = raw[line_end:]
        known = self._known.get(fields) or self._learn(raw, fields)
        if known is None or time.time() >= known.until_s:
            return None
        return known, line[0], line[1]

    def _learn(self, raw: bytes, fields: bytes) -> Pass | None:
        try:
            request = parse_request(raw)
            passage = self._check(request)
        except (BadMessage, Refused):
            return None
        if passage.is_shell or passage.used_subprotocol or not _is_usual(request):
            return None
        out = gate.passed_on(request, passage, self._endpoint, "").to_bytes()
        # The number of the request comes last, and is another for each.
        found = Pass(passage, request.length or 0, out[out.find(b"\r\n") : -4], passage.until.timestamp())
        if len(fields) <= _MAX_REMEMBERED_BYTES:
            if len(self._known) >= _MAX_REMEMBERED:
                self._known.clear()
            self._known[fields] = found
        return found


@dataclass(frozen=True, slots=True)
class Begun:
    """A request in the middle of which the task takes over.

    Args:
        head: Of the request.
        passage: Where it goes.
        unsent: What the guest has yet to get of all of it.
    """

    head: bytes
    passage: Passage
    unsent: bytes


class Lane:
    """Of one connection.

    Args:
        client: Nobody else reads while the lane runs.
        traffic: Of the endpoint.
        passes: Of the endpoint.
        is_open: Whether the lane may be used at all; asked before each request.
        idle_s: How long a client may say nothing.
        reuse_within_s: How old a connection to the guest may be.
    """

    def __init__(
        self,
        client: ClientStream,
        traffic: Traffic,
        passes: Passes,
        *,
        is_open: Callable[[], bool],
        idle_s: float,
        reuse_within_s: float,
    ) -> None:
        self._client = client
        self._traffic = traffic
        self._passes = passes
        self._is_open = is_open
        self._idle_s = idle_s
        self._reuse_within_s = reuse_within_s
        self._loop = asyncio.get_running_loop()
        self._parse = Remembered(parse_response)
        self._over: asyncio.Future[Begun | bool]
        self._upstream: Upstream[Duplex]
        self._idle: asyncio.TimerHandle
        self._rest: asyncio.TimerHandle | None = None
        self._ended_at = 0.0
        # Of the request that is under way; no head: none is.
        self._head = b""
        self._passage: Passage
        self._method = b""
        self._body: Framing | None = None
        self._is_kept = True

    async def run(self, upstream: Upstream[Duplex]) -> Begun | bool:
        """Carry requests over a connection to the guest for as long as they are usual.

        Returns:
            What the task has to go on with; True: with whatever the client sends next; False: the client is done with.

        Raises:
            BadMessage, Cut, OSError: As `Exchange.run`.
        """
        self._upstream, self._over = upstream, self._loop.create_future()
        self._ended_at = self._loop.time()
        self._idle = self._loop.call_later(self._idle_s, self._on_idle)
        self._client.watcher = self
        upstream.duplex.watch(self._on_answer)
        try:
            if self._client.held:
                self.on_data()
            elif self._client.is_gone:
                self.on_gone()
            return await self._over
        finally:
            self._leave(True)
            self._end_request()

    # The client's side.

    def on_data(self) -> None:
        """Of `Watcher`: begin with the next request, if it is all here."""
        if self._head or self._client.is_slow:
            return
        held = self._client.held
        end = held.find(b"\r\n\r\n") + 4
        if end < 4:
            self._wait_for_rest(len(held))
            return
        found = self._passes.find(held[:end]) if end <= MAX_HEAD_BYTES and self._is_open() else None
        if found is None:
            self._leave(True)
            return
        known, line, self._method = found
        self._passage, size = known.passage, end + known.length
        if len(held) < size:
            self._wait_for_rest(size)
        elif self._has_way():
            self._begin(held[:end], b"".join((line, known.fields, _number(), b"\r\n\r\n", held[end:size])), size)
        else:
            self._leave(True)

    def on_gone(self) -> None:
        """Of `Watcher`: the guest hears of it, too."""
        if self._head:
            self._fail(Cut("the client went away"))
        else:
            self._leave(True)

    def on_eased(self) -> None:
        """Of `Watcher`: go on."""
        if self._head:
            self._upstream.duplex.watch(self._on_answer)
        elif self._client.held:
            self.on_data()

    def _wait_for_rest(self, size: int) -> None:
        """Many clients send a head and a small body apart; what takes longer is passed on as it comes."""
        if size > _WHOLE_BYTES:
            self._leave(True)
        elif self._rest is None:
            self._rest = self._loop.call_later(_REST_S, self._leave, True)

    def _stop_waiting(self) -> None:
        if self._rest is not None:
            self._rest.cancel()
            self._rest = None

    def _has_way(self) -> bool:
        port, epoch = self._passage.port, self._traffic.epoch
        return self._upstream.is_fresh(port, epoch, within_s=self._reuse_within_s)

    def _begin(self, head: bytes, request: bytes, size: int) -> None:
        try:
            sent = self._upstream.duplex.send_now(request)
        except OSError:
            # Nothing of it was sent: the task does it again over another connection.
            self._leave(True)
            return
        self._stop_waiting()
        self._traffic.touch()
        self._traffic.add(self._cut)
        self._client.take(size)
        self._head, self._body = head, None
        if sent < len(request):
            self._leave(Begun(head, self._passage, request[sent:]))

    # The guest's side.

    def _on_answer(self) -> None:
        end: OSError | Cut = Cut("the guest closed the connection")
        try:
            data = self._upstream.duplex.receive_now(_FIRST_BYTES if self._body is None else CHUNK_BYTES)
        except OSError as exc:
            data, end = b"", exc
        if data is None:
            return
        if not self._head:
            # An end, or an answer to nothing, which must not become the next one's.
            self._upstream.duplex.close()
            self._leave(True)
        elif not data:
            self._fail(end if self._body is not None else BadMessage(502, str(end)))
        else:
            self._traffic.touch()
            self._take(data)

    def _take(self, data: bytes) -> None:
        at = 0
        try:
            if self._body is None:
                at = self._take_head(data)
            if self._body is None:
                self._upstream.source.give_back(data)
                self._leave(Begun(self._head, self._passage, b""))
                return
            at += self._body.feed(data[at:])
        except BadMessage as exc:
            self._fail(BadMessage(502, exc.why) if self._body is None else Cut(exc.why))
            return
        self._client.write(data[:at])
        if self._body.is_done:
            self._end(is_clean=at == len(data))
        elif self._client.is_slow:
            self._upstream.duplex.unwatch()

    def _take_head(self, data: bytes) -> int:
        """The size of an answer's head that is whole and usual; only then there is a body to follow."""
        end = data.find(b"\r\n\r\n") + 4
        if end < 4 or data.startswith(b"\r\n"):
            return 0
        response = self._parse(data[:end], self._method)
        if response.status < 200 or response.framing == "close":
            return 0
        self._body = framing_of(response.framing)
        self._is_kept = response.is_keep_alive
        return end

    def _end(self, *, is_clean: bool) -> None:
        self._end_request()
        self._upstream.used_at = time.monotonic()
        self._ended_at = self._loop.time()
        if not self._is_kept or not is_clean:
            self._upstream.duplex.close()
            self._leave(self._is_kept)
        elif self._client.held:
            self.on_data()

    def _end_request(self) -> None:
        self._head, self._body = b"", None
        self._traffic.remove(self._cut)

    # Leaving the lane.

    def _on_idle(self) -> None:
        left_s = self._ended_at + self._idle_s - self._loop.time()
        if self._head or left_s > 0:
            self._idle = self._loop.call_later(left_s if left_s > 0 else self._idle_s, self._on_idle)
        else:
            self._leave(False)

    def _cut(self) -> None:
        self._upstream.duplex.close()
        self._client.abort()

    def _fail(self, why: Exception) -> None:
        if not self._over.done():
            self._over.set_exception(why)
        self._leave(False)

    def _leave(self, outcome: Begun | bool) -> None:
        """What the loop tells of is somebody else's from now on."""
        self._idle.cancel()
        self._stop_waiting()
        self._client.watcher = None
        self._upstream.duplex.unwatch()
        if not self._over.done():
            self._over.set_result(outcome)


def _number() -> bytes:
    """A random UUID, for a fraction of what `uuid` takes."""
    digits = os.urandom(16).hex()
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}".encode()


def _is_usual(request: RequestHead) -> bool:
    """Whether one answer follows on one request, and the connection goes on."""
    is_plain = request.length is not None and not request.head.values(b"expect")
    return is_plain and request.is_keep_alive and not request.wants_upgrade
