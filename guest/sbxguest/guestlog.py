"""The sandbox's own log: what every job said and what happened to the guest, in one order.

Output is not copied: a timeline says which bytes of which job's log came when. What the guest itself has to tell is a
log of its own, one JSON line for each event. Both outlive the server, as init keeps them.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from sbxguest import wire
from sbxguest.initclient import InitClient
from sbxguest.job import Job
from sbxguest.joblog import JobLog
from sbxguest.timeline import Span, Timeline

_KEPT = ("timeline", "events")
_EVENTS_BYTES = 256 * wire.KIB
_EVENTS_KEY = 0
# Closed logs are let go of when there are this many.
_LOGS_MAX = 1024
_COMMAND_MAX = 200
# Who begins the commands by which the guest tries itself, before it is anybody's: no sandbox's log is about them.
SELF_TEST = "hook"


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes of a log on one channel. Without `data`, `lost_bytes` of the job (empty: of several) are no longer kept.

    `end` is the position behind it.
    """

    end: int
    at_ms: int
    job: str
    channel: int
    data: bytes = b""
    lost_bytes: int = 0


class GuestLog:
    """Belongs to the event loop's thread."""

    def __init__(self, timeline: Timeline, events: JobLog) -> None:
        self.timeline = timeline
        self._events = events
        self._logs: dict[int, tuple[str, JobLog]] = {_EVENTS_KEY: ("", events)}
        self._covered: dict[int, int] = {}
        self._changed: asyncio.Event | None = None
        events.on_growth = partial(self._grew, _EVENTS_KEY)

    @classmethod
    def of(cls, named: dict[str, int], init: InitClient) -> GuestLog:
        """The one that init keeps, whose descriptors are taken out of `named`; else a new one, kept from now on."""
        fds = [named.pop(name) for name in _KEPT if name in named]
        if len(fds) == len(_KEPT):
            kept = cls(Timeline(fds[0]), JobLog(fds[1]))
            kept._covered = kept.timeline.covered()
            kept._catch_up(_EVENTS_KEY, kept._events)
            kept.say("guest.restarted")
            return kept
        made = cls(Timeline.create(), JobLog.create("events", ring_bytes=_EVENTS_BYTES, meta=b"{}"))
        for name, fd in zip(_KEPT, (made.timeline.fd, made._events.fd), strict=True):
            init.keep(name, fd)
        return made

    @property
    def id(self) -> str:
        """Another one after another start of the sandbox: positions of one mean nothing in another."""
        return str(self.timeline.id)

    @property
    def total(self) -> int:
        """The position behind the last byte."""
        return self.timeline.total

    # -- writing ------------------------------------------------------------------------------------------------------

    def say(self, event: str, *, job: str = "", **more: object) -> None:
        """Tell that something happened."""
        line = json.dumps({"event": event, "job": job, **more}, ensure_ascii=True, separators=(",", ":"))
        self._events.add(line.encode() + b"\n", wire.Channel.NONE)

    def follow(self, job: Job, *, is_new: bool) -> None:
        """Have a job's output told from now on, and what a killed server had not told of it yet."""
        if _is_self_test(job):
            return
        key = _key_of(job.id)
        if len(self._logs) >= _LOGS_MAX:
            self._logs = {known: one for known, one in self._logs.items() if not one[1].is_closed}
        self._logs[key] = (job.id, job.log)
        job.log.on_growth = partial(self._grew, key)
        if is_new:
            self.say("job.started", job=job.id, command=_command_of(job.shown), actor=job.shown["actor"])
        else:
            self._catch_up(key, job.log)

    def ended(self, job: Job) -> None:
        """Tell how a job ended; after its last byte."""
        if _is_self_test(job):
            return
        how = job.exit
        told = {name: how.get(name) for name in ("code", "signal", "timed_out", "oom") if how.get(name) is not None}
        self.say("job.ended", job=job.id, **told)

    def _catch_up(self, key: int, log: JobLog) -> None:
        told = self._covered.get(key)
        if told is None:
            # One whose spans are all forgotten was told long ago.
            told = log.total if self.timeline.has_forgotten else 0
        if told < log.total:
            self._grew(key, told, log.total - told)

    def _grew(self, key: int, start: int, length: int) -> None:
        self.timeline.grew(key, start, length)
        if self._changed is not None:
            self._changed.set()

    # -- reading ------------------------------------------------------------------------------------------------------

    async def changed(self) -> None:
        """Return once there is more than when this was called."""
        if self._changed is None or self._changed.is_set():
            self._changed = asyncio.Event()
        await self._changed.wait()

    def read(self, position: int, limit_bytes: int) -> Iterator[Piece]:
        """What was said from a position on, up to about `limit_bytes`."""
        floor = self.timeline.floor
        if position < floor:
            yield Piece(floor, 0, "", wire.Channel.NONE, lost_bytes=floor - position)
            position = floor
        end = position + limit_bytes
        for span in self.timeline.spans(position):
            if span.position >= end:
                return
            yield from self._pieces(span)

    def last_lines(self, count: int) -> int:
        """A position at or before which the last `count` lines begin."""
        lines = 0
        position = self.total
        for span in self.timeline.backwards():
            if lines > count:
                break
            lines += sum(piece.data.count(b"\n") for piece in self._pieces(span))
            position = span.position
        return position

    def _pieces(self, span: Span) -> Iterator[Piece]:
        job, log = self._logs.get(span.key, ("", None))
        if log is None or log.is_closed:
            yield Piece(span.position + span.length, span.at_ms, job, 0, lost_bytes=span.length)
            return
        ahead = span.position - span.start
        at = span.start
        for cursor, channel, data in log.pieces(span.start, span.start + span.length):
            if cursor > at:
                yield Piece(cursor + ahead, span.at_ms, job, 0, lost_bytes=cursor - at)
            at = cursor + len(data)
            yield Piece(at + ahead, span.at_ms, job, channel, data)
        if at < span.start + span.length:
            lost = span.start + span.length - at
            yield Piece(span.position + span.length, span.at_ms, job, 0, lost_bytes=lost)


def _key_of(job_id: str) -> int:
    return int.from_bytes(hashlib.blake2b(job_id.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big") | 1


def _command_of(shown: dict[str, Any]) -> str:
    argv = shown.get("argv") or []
    text = str(shown.get("shell") or " ".join(map(str, argv)))
    return text if len(text) <= _COMMAND_MAX else text[: _COMMAND_MAX - 1] + "…"


def _is_self_test(job: Job) -> bool:
    return bool(job.shown["actor"] == SELF_TEST)
