"""A job's log as one unbroken stream of frames, whatever happens to the connections below it."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

from sbxguest import wire
from sbxtui.core.errors import Conflict, ConnectionLost, GuestUnreachable
from sbxtui.core.text import harmless_line
from sbxtui.guest.faults import may_have_arrived, translated
from sbxtui.guest.http1 import Patience
from sbxtui.guest.transport import RETRYABLE, Backoff, Transport, json_body

# Heartbeats come every 15 s: two lost ones and a connection is dead, however silent the command is.
_SILENCE_S = 40.0
_PATIENCE = Patience(answer_s=_SILENCE_S)
RECONNECT_S = 30.0
_DOUBT_EVERY = 3
# Each request says by its cursor what has arrived; the guest keeps the rest. Half of the guest's ring, so that it can
# fill the other half while this one travels.
WINDOW_BYTES = 4 * wire.MIB


class Garbled(GuestUnreachable):
    """The guest sent what no guest sends; asking again would bring it again."""

    retryable = False


class LogReader:
    """Reads one job's log to its end, reconnecting by cursor.

    Args:
        transport: To the guest.
        job_id: Which job.
        boot_id: The boot it runs in; in another one the guest answers 410 (`Conflict`).
        cursor: Where to begin.
        holds: Be a reader that a `hold` job waits for.
        follows: Wait for more at the log's end; else the stream ends there, with EXIT only if the job has ended.
        until: A cursor to stop at, if the job goes on writing: without one, a stream that does not follow may not end.
        body: The request that starts the job, if it may not exist yet. Repeating it is safe.
        start_path: Where that request goes; the job may wait there for its turn.
    """

    def __init__(
        self,
        transport: Transport,
        job_id: str,
        boot_id: str,
        *,
        cursor: int = 0,
        holds: bool = False,
        follows: bool = True,
        until: int | None = None,
        body: Mapping[str, Any] | None = None,
        start_path: str = "/v2/jobs",
    ) -> None:
        self._transport = transport
        self._job_id = job_id
        self._headers = {wire.BOOT_HEADER: boot_id}
        self._holds = holds
        # The guest keeps for each reader what that has not asked beyond.
        self._name = secrets.token_hex(8)
        self._follows = follows
        self._until = until
        self._body = body
        self.cursor = cursor
        self._start_path = start_path
        # Whether the guest has taken the request, and whether the job is there to be followed by its id.
        self._is_accepted = body is None
        self._may_be_accepted = False
        self.is_started = body is None
        self._exit: wire.Frame | None = None

    async def frames(self) -> AsyncGenerator[wire.Frame, None]:
        """JOB, DATA and GAP frames in order, then EXIT, which is always the last one; without `follows` it may lack.

        Raises:
            GuestUnreachable: No way back to the guest for 30 s; the job goes on. `details["job"]` is its id.
            SbxError: The guest refused, see `core.errors`.
        """
        backoff = Backoff(RECONNECT_S)
        failures = 0
        while self._exit is None:
            before = self.cursor
            failure: Exception | None = None
            try:
                async with aclosing(self._one_window()) as window:
                    async for frame in window:
                        backoff.reset()
                        failures = 0
                        if frame.type != wire.FrameType.HEARTBEAT:
                            yield frame
                        if self._is_at_its_end:
                            return
            except Garbled:
                raise
            except RETRYABLE as exc:
                failure = exc
                self._may_be_accepted = self._may_be_accepted or may_have_arrived(exc)
            if self._exit is None and (failure is not None or self.cursor == before):
                if failure is None and not self._follows:
                    return
                failures += 1
                if failures % _DOUBT_EVERY == 0:
                    await self._transport.check_there()
                await backoff.wait(self._lost(failure))
        yield self._exit

    @property
    def _is_at_its_end(self) -> bool:
        return self._until is not None and self.cursor >= self._until

    async def _one_window(self) -> AsyncGenerator[wire.Frame, None]:
        """What one request brings. EXIT is kept aside until the answer ended: its connection can be used again then."""
        doing = "following a command" if self.is_started else "starting a command"
        decoder = wire.FrameDecoder()
        with translated(doing):
            async with self._request() as answer:
                await self._transport.check(answer, doing)
                self._is_accepted = True
                async for data in answer.pieces():
                    for frame in _decoded(decoder, data):
                        self._move(frame)
                        if self._exit is None:
                            yield frame

    def _move(self, frame: wire.Frame) -> None:
        if self._exit is not None:
            raise _garbled("something came behind EXIT")
        match frame.type:
            case wire.FrameType.EXIT:
                self._exit = frame
            case wire.FrameType.JOB:
                self.is_started = True
            case wire.FrameType.ERROR:
                raise _refused(frame)
        if frame.type not in (wire.FrameType.DATA, wire.FrameType.GAP):
            return
        if frame.cursor != self.cursor:
            raise _garbled(f"output at {frame.cursor} where {self.cursor} was next")
        try:
            self.cursor = frame.end_cursor
        except wire.BadFrame as exc:
            raise _garbled(str(exc)) from exc

    def _request(self) -> Any:
        query: dict[str, str | int] = {"follow": 1, "max_bytes": WINDOW_BYTES, "reader": self._name}
        if not self.is_started:
            body = json_body(self._body)
            return self._transport.stream(
                "POST", self._start_path, query=query, headers=self._headers, content=body, patience=_PATIENCE
            )
        if not self._follows:
            del query["follow"]
        query["cursor"] = self.cursor
        if self._holds:
            query["hold"] = 1
        path = f"/v2/jobs/{self._job_id}/log"
        return self._transport.stream("GET", path, query=query, headers=self._headers, patience=_PATIENCE)

    def _lost(self, failure: Exception | None) -> GuestUnreachable:
        reason = getattr(failure, "message", "the stream ended early")
        if not self._is_accepted and not self._may_be_accepted:
            return GuestUnreachable(f"the command was not started: {reason}", hint="retrying is safe")
        lost = (connection_lost if self._is_accepted else start_unknown)(self._job_id, reason)
        lost.details["cursor"] = self.cursor
        lost.__cause__ = failure
        return lost


def connection_lost(job_id: str, reason: str) -> ConnectionLost:
    """The error for a running command that cannot be reached any more."""
    return _lost(f"lost the connection to job `{job_id}`, which goes on: {reason}", job_id)


def start_unknown(job_id: str, reason: str) -> ConnectionLost:
    """The error for a command that was asked for, when no answer says whether it was begun."""
    return _lost(f"lost the connection before the guest said whether it started job `{job_id}`: {reason}", job_id)


def _lost(message: str, job_id: str) -> ConnectionLost:
    hint = "before running the command again, make sure that twice does no harm"
    return ConnectionLost(message, hint=hint, details={"job": job_id})


def _refused(frame: wire.Frame) -> Conflict:
    """A job that waited for its turn will not have it."""
    try:
        said = wire.payload_json(frame)
    except wire.BadFrame as exc:
        raise _garbled(str(exc)) from exc
    return Conflict(harmless_line(str(said.get("message"))), hint=harmless_line(str(said.get("hint") or "")))


def _garbled(what: str) -> Garbled:
    return Garbled(f"the guest's answer makes no sense: {what}", hint="does a guest of sbx answer there?")


def _decoded(decoder: wire.FrameDecoder, data: bytes) -> list[wire.Frame]:
    try:
        return list(decoder.feed(data))
    except wire.BadFrame as exc:
        raise _garbled(str(exc)) from exc
