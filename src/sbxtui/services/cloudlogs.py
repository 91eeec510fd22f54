"""What the platform keeps of a sandbox's or a build's output: CloudWatch Logs.

The guest's own log knows more and costs nothing; this one is there when the sandbox is not.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sbxtui.control.api import ControlApi
from sbxtui.control.cloudlogs import groups_of, is_runtime, line_of, stream_of
from sbxtui.core.errors import NotFound, SandboxNotFound
from sbxtui.core.logs import LogLine, LogQuery, LogSource, Tail
from sbxtui.core.model import Context, Registration
from sbxtui.services.planes import ControlPlanes

_POLL_FIRST_S = 1.0
_POLL_MAX_S = 10.0
_PAGE = 10_000


@dataclass(frozen=True, slots=True)
class _Subject:
    """Of what logs are wanted, as the platform knows it."""

    name: str
    sandbox_id: str
    image: str
    version: str
    started_at: datetime
    has_role: bool


class CloudLogs:
    """Logs of one context in CloudWatch."""

    def __init__(self, context: Context, planes: ControlPlanes) -> None:
        self._context = context
        self._planes = planes

    async def lines(self, row: Registration, query: LogQuery) -> AsyncGenerator[LogLine, None]:
        """The lines that are there, oldest first, then, when following, what comes, asked for ever more seldom.

        Raises:
            NotFound: There is no such group or stream; the hint says what is missing.
            SbxError: As every call of AWS.
        """
        plane = await self._planes.open(self._context)
        subject = await _subject(plane, row)
        tail = Tail(query.tail)
        marks: dict[tuple[str, str], str] = {}
        pause_s = _POLL_FIRST_S
        while True:
            streams = await self._streams(plane, subject, query, is_patient=query.is_following)
            has_more = False
            for place in streams:
                async for event in self._new_events(plane, place, query, marks):
                    has_more = True
                    line = line_of(event, query.source)
                    if query.wants(line):
                        tail.add(line)
            for line in tail.kept():
                yield line
            if not query.is_following:
                return
            # What comes from now on is wanted, however many lines that are.
            tail = Tail(None)
            pause_s = _POLL_FIRST_S if has_more else min(pause_s * 1.5, _POLL_MAX_S)
            await asyncio.sleep(pause_s)

    async def _streams(
        self, plane: ControlApi, subject: _Subject, query: LogQuery, *, is_patient: bool
    ) -> Sequence[tuple[str, str]]:
        """Groups and streams that hold what is wanted."""
        groups = [query.log_group] if query.log_group else groups_of(subject.image)
        missing = 0
        for group in groups:
            try:
                found = await self._streams_in(plane, group, subject, query)
            except NotFound:
                missing += 1
                continue
            if found:
                return [(group, stream) for stream in found]
        if is_patient:
            return []
        raise _nothing(subject, groups, query, has_group=missing < len(groups))

    async def _streams_in(self, plane: ControlApi, group: str, subject: _Subject, query: LogQuery) -> Sequence[str]:
        if query.source is LogSource.BUILD:
            return [name for name in await plane.log_streams(group) if not is_runtime(name)]
        exact = stream_of(subject.started_at, subject.version, subject.sandbox_id)
        day = exact.partition("[")[0] + "["
        names = await plane.log_streams(group, prefix=day)
        return [exact] if exact in names else [name for name in names if name.endswith(subject.sandbox_id)]

    async def _new_events(
        self, plane: ControlApi, place: tuple[str, str], query: LogQuery, marks: dict[tuple[str, str], str]
    ) -> AsyncGenerator[dict[str, Any], None]:
        """What a stream has behind its mark, which moves on."""
        group, stream = place
        parameters: dict[str, Any] = {"logGroupName": group, "logStreamName": stream, "limit": _PAGE}
        if query.since is not None:
            parameters["startTime"] = int(query.since.timestamp() * 1000)
        if query.until is not None:
            parameters["endTime"] = int(query.until.timestamp() * 1000) + 1
        wants_end = query.tail is not None and query.wants_all and place not in marks
        if wants_end and query.tail:
            parameters |= {"limit": min(_PAGE, query.tail)}
        while True:
            token = marks.get(place)
            more = {"nextToken": token} if token else {"startFromHead": not wants_end}
            answer = await plane.log_call("GetLogEvents", {**parameters, "startFromHead": True, **more})
            for event in answer.get("events", ()):
                yield event
            following = str(answer.get("nextForwardToken") or "")
            if not following or following == token:
                return
            marks[place] = following
            if wants_end:
                parameters["limit"], wants_end = _PAGE, False


async def _subject(plane: ControlApi, row: Registration) -> _Subject:
    """As its control plane tells it; of one that is forgotten there, as it was launched."""
    image = row.request.image_arn.rsplit(":", 1)[-1]
    try:
        record = await plane.get(row.id)
    except SandboxNotFound:
        version, has_role = row.request.image_version, bool(row.request.execution_role_arn)
        return _Subject(row.name, row.id, image, version, row.created_at, has_role)
    image = record.image_arn.rsplit(":", 1)[-1] or image
    return _Subject(row.name, row.id, image, record.image_version, record.started_at, bool(record.execution_role_arn))


def _nothing(subject: _Subject, groups: Sequence[str], query: LogQuery, *, has_group: bool) -> NotFound:
    if query.source is LogSource.BUILD:
        return NotFound(
            f"no log of a build of image `{subject.image}` was found in {' or '.join(groups)}",
            hint="a build whose role may not write logs leaves none; `--log-group` names another group",
        )
    if not subject.has_role and not query.log_group:
        return NotFound(
            f"`{subject.name}` was launched without an execution role, so the platform keeps no log of it",
            hint="`--source guest` reads its own; `sbx create --role ARN` makes one whose output is kept",
        )
    what = "the log group has no stream of it yet" if has_group else f"there is no log group {' or '.join(groups)}"
    return NotFound(
        f"no log of `{subject.name}`: {what}",
        hint="the first lines take up to two minutes; the role needs logs:CreateLogGroup, CreateLogStream and "
        "PutLogEvents; `--log-group` names another group",
    )
