"""CloudWatch Logs as far as anybody here needs them: what sandboxes printed, and what clients put; on the API's port.

Operations are found by `X-Amz-Target` and checked against botocore's model, like those of the sandboxes. Groups and
streams are named as on the platform; the events are the lines of the sandboxes' log files.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC
from functools import cache
from pathlib import Path
from typing import Any

import botocore.loaders
import botocore.model

from sbxtui.localcloud import faults
from sbxtui.localcloud.faults import Fault, FaultBody
from sbxtui.localcloud.images.shelf import BuiltLog
from sbxtui.localcloud.livetail import LiveTail
from sbxtui.localcloud.logpages import place_of, position_of, read_lines
from sbxtui.localcloud.logstore import Line, LogFull, LogStore, Stream
from sbxtui.localcloud.records import Record
from sbxtui.localcloud.shapes import check_input
from sbxtui.localcloud.sigv4 import HttpRequest

CONTENT_TYPE = "application/x-amz-json-1.1"
_TARGET = "x-amz-target"
_SERVICE = "logs"
_GROUP = "/aws/lambda-microvms/"
_STREAMS_PAGE = 50
_EVENTS_PAGE = 10_000
_GROUP_ARN = re.compile(r"arn:aws:logs:[a-z0-9-]+:\d{12}:log-group:([^:*]+)")
_TOKEN = re.compile(r"[fb]/(\d{1,15})/(\d{1,9})")


def is_for_logs(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether a request's headers name an operation of this service."""
    prefix = str(_model().metadata["targetPrefix"]).encode()
    return any(name.lower() == _TARGET.encode() and value.startswith(prefix + b".") for name, value in headers)


class LogsApi:
    """Answers requests whose signature was checked.

    Args:
        records: All sandboxes, those that ended too.
        folder_of: Where a sandbox's log files are.
        builds: What builds of images said.
        store: What clients put.
    """

    def __init__(
        self,
        records: Callable[[], Sequence[Record]],
        folder_of: Callable[[str], Path],
        builds: Callable[[], Iterable[BuiltLog]],
        store: LogStore,
    ) -> None:
        self._records = records
        self._folder_of = folder_of
        self._builds = builds
        self._store = store

    async def answer(self, request: HttpRequest) -> dict[str, Any] | LiveTail:
        """The answer's document, or a session.

        Raises:
            Fault: What goes wrong, as the service says it.
        """
        operation, params = _decoded(request)
        match operation:
            case "DescribeLogGroups":
                return self._groups(params)
            case "DescribeLogStreams":
                return self._streams(params)
            case "GetLogEvents":
                return await self._events(params)
            case "FilterLogEvents":
                return await self._filtered(params)
            case "StartLiveTail":
                return self._tail(params)
            case "CreateLogGroup" | "CreateLogStream":
                return await asyncio.to_thread(self._make, params["logGroupName"], params.get("logStreamName", ""))
            case "PutLogEvents":
                return await asyncio.to_thread(self._put, params)
            case _:
                raise faults.unsupported(operation)

    def _groups(self, params: Mapping[str, Any]) -> dict[str, Any]:
        prefix, after = params.get("logGroupNamePrefix", ""), params.get("nextToken", "")
        began = {one.group: int(one.made_at.timestamp() * 1000) for one in self._store.all() if not one.stream}
        for stream in self._all():
            began[stream.group] = min(stream.began_ms, began.get(stream.group, stream.began_ms))
        names = sorted(name for name in began if name.startswith(prefix) and name > after)
        page = names[: params.get("limit", _STREAMS_PAGE)]
        more = {"nextToken": page[-1]} if len(page) < len(names) else {}
        return {"logGroups": [{"logGroupName": one, "creationTime": began[one]} for one in page], **more}

    def _streams(self, params: Mapping[str, Any]) -> dict[str, Any]:
        group = _group_of(params)
        prefix, after = params.get("logStreamNamePrefix", ""), params.get("nextToken", "")
        found = self._of_group(group)
        rows = [one for one in found if one.name.startswith(prefix) and one.name > after]
        page = rows[: params.get("limit", _STREAMS_PAGE)]
        more = {"nextToken": page[-1].name} if len(page) < len(rows) else {}
        return {"logStreams": [_row(one) for one in page], **more}

    async def _events(self, params: Mapping[str, Any]) -> dict[str, Any]:
        group, name = _group_of(params), params["logStreamName"]
        stream = next((one for one in self._of_group(group) if one.name == name), None)
        if stream is None:
            raise _missing("The specified log stream does not exist.")
        lines = [line for line in await asyncio.to_thread(self._lines_of, stream) if _is_wanted(line, params)]
        limit = params.get("limit", _EVENTS_PAGE)
        start = 0 if params.get("startFromHead") else max(0, len(lines) - limit)
        if "nextToken" in params:
            start = _position(params["nextToken"], lines)
        page = lines[start : start + limit]
        return {
            "events": [{"timestamp": one.at_ms, "ingestionTime": one.at_ms, "message": one.text} for one in page],
            "nextForwardToken": _token("f", lines, start + len(page)),
            "nextBackwardToken": _token("b", lines, start),
        }

    async def _filtered(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """FilterLogEvents; a pattern is a plain word or phrase that a line must hold."""
        pattern = _phrase(params.get("filterPattern", ""))
        names, prefix = params.get("logStreamNames"), params.get("logStreamNamePrefix", "")
        found: list[tuple[Line, str]] = []
        for stream in self._of_group(_group_of(params)):
            if (names is None or stream.name in names) and stream.name.startswith(prefix):
                lines = await asyncio.to_thread(self._lines_of, stream)
                found += [(line, stream.name) for line in lines if pattern in line.text and _is_wanted(line, params)]
        found.sort(key=lambda one: one[0].at_ms)
        start = int(params["nextToken"]) if params.get("nextToken", "").isdigit() else 0
        page = found[start : start + params.get("limit", _EVENTS_PAGE)]
        more = {"nextToken": str(start + len(page))} if start + len(page) < len(found) else {}
        events = [
            {
                "timestamp": line.at_ms,
                "ingestionTime": line.at_ms,
                "message": line.text,
                "logStreamName": name,
                "eventId": f"{start + index:056}",
            }
            for index, (line, name) in enumerate(page)
        ]
        return {"events": events, "searchedLogStreams": [], **more}

    def _tail(self, params: Mapping[str, Any]) -> LiveTail:
        """StartLiveTail; streams are named by whole names or by how they begin, those of one group only."""
        groups = [_group_in(arn) for arn in params["logGroupIdentifiers"]]
        names, prefixes = params.get("logStreamNames"), params.get("logStreamNamePrefixes")
        if names and prefixes:
            raise _invalid("logStreamNames and logStreamNamePrefixes cannot be given both.")
        if (names or prefixes) and len(groups) > 1:
            raise _invalid("Log streams can be named of one log group only.")

        def wanted() -> list[Stream]:
            return [
                stream
                for stream in self._all()
                if stream.group in groups
                and (not names or stream.name in names)
                and (not prefixes or stream.name.startswith(tuple(prefixes)))
            ]

        for group in groups:
            self._of_group(group)
        return LiveTail(params, wanted, self._store, _phrase(params.get("logEventFilterPattern", "")))

    def _make(self, group: str, stream: str) -> dict[str, Any]:
        known = [one.name for one in self._of_group(group)] if stream else [one.group for one in self._all()]
        try:
            if (stream or group) in known:
                raise FileExistsError(group)
            self._store.make(group, stream)
        except FileExistsError as exc:
            kind = "stream" if stream else "group"
            message = f"The specified log {kind} already exists"
            raise Fault(FaultBody("ResourceAlreadyExistsException", 400, message)) from exc
        return {}

    def _put(self, params: Mapping[str, Any]) -> dict[str, Any]:
        group, stream, events = params["logGroupName"], params["logStreamName"], params["logEvents"]
        self._of_group(group)
        if not self._store.has_stream(group, stream):
            raise _missing("The specified log stream does not exist.")
        times = [event["timestamp"] for event in events]
        if times != sorted(times):
            raise _invalid("Log events in a single PutLogEvents request must be in chronological order.")
        try:
            self._store.put(group, stream, events)
        except LogFull as exc:
            message = "The local cloud keeps no more in one log stream"
            raise Fault(FaultBody("LimitExceededException", 400, message)) from exc
        return {"nextSequenceToken": "0"}

    def _lines_of(self, stream: Stream) -> list[Line]:
        lines = read_lines(stream.files, stream.began_at) + self._store.lines(stream.group, stream.name)
        return sorted(lines, key=lambda line: line.at_ms)

    def _all(self) -> list[Stream]:
        """All streams, by group and name."""
        found: dict[tuple[str, str], Stream] = {}
        for record in self._records():
            folder = self._folder_of(record.id)
            files = (folder / "keeper.log.1", folder / "keeper.log")
            group = record.log_group or _GROUP + record.image_name
            _add(found, Stream(group, record.log_stream or stream_name(record), record.started_at, files))
        for build in self._builds():
            name = f"{build.began_at.astimezone(UTC):%Y/%m/%d}[{build.version}]build"
            _add(found, Stream(_GROUP + build.image, name, build.began_at, (build.file,)))
        for made in self._store.all():
            if made.stream:
                _add(found, Stream(made.group, made.stream, made.made_at))
        return [found[key] for key in sorted(found)]

    def _of_group(self, group: str) -> list[Stream]:
        found = [stream for stream in self._all() if stream.group == group]
        if not found and not any(one.group == group for one in self._store.all()):
            raise _missing("The specified log group does not exist.")
        return found


def stream_name(record: Record) -> str:
    """A sandbox's stream, as the platform names it."""
    return f"{record.started_at.astimezone(UTC):%Y/%m/%d}[{record.image_version}]{record.id}"


def _add(found: dict[tuple[str, str], Stream], stream: Stream) -> None:
    key = (stream.group, stream.name)
    known = found.get(key)
    files = (*(known.files if known else ()), *stream.files)
    began_at = min(stream.began_at, known.began_at) if known else stream.began_at
    found[key] = Stream(stream.group, stream.name, began_at, files)


def _is_wanted(line: Line, params: Mapping[str, Any]) -> bool:
    until: float = params.get("endTime", float("inf"))
    return bool(params.get("startTime", 0) <= line.at_ms < until)


def _decoded(request: HttpRequest) -> tuple[str, dict[str, Any]]:
    operation = request.header(_TARGET).partition(".")[2]
    if operation not in _model().operation_names:
        raise Fault(FaultBody("UnknownOperationException", 400, ""))
    try:
        params = json.loads(request.body or b"{}")
    except (ValueError, RecursionError) as exc:
        raise faults.serialization("Could not parse request body into json") from exc
    if not isinstance(params, dict):
        raise faults.serialization("Start of structure or map found where not expected.")
    shape = _model().operation_model(operation).input_shape
    params = {name: params[name] for name in shape.members if params.get(name) is not None}
    try:
        check_input(shape, params)
    except Fault as fault:
        if fault.body.code != "ValidationException":
            raise
        raise _invalid(fault.body.message or "") from fault
    return operation, params


def _phrase(pattern: str) -> str:
    """What a line must hold."""
    phrase = pattern.strip().strip('"')
    if phrase[:1] in ("{", "[", "%"):
        raise _invalid("The local cloud filters by a plain word or phrase only")
    return phrase


def _group_in(arn: str) -> str:
    match = _GROUP_ARN.fullmatch(arn)
    if match is None:
        raise _invalid("Each log group must be given by its ARN, which ends with its name.")
    return match[1]


def _group_of(params: Mapping[str, Any]) -> str:
    group: str | None = params.get("logGroupName")
    if group is None:
        raise _invalid("Exactly one of logGroupName or logGroupIdentifier must be given; here: logGroupName.")
    return group


def _row(stream: Stream) -> dict[str, Any]:
    began_ms = stream.began_ms
    return {"logStreamName": stream.name, "creationTime": began_ms, "firstEventTimestamp": began_ms, "storedBytes": 0}


def _token(way: str, lines: Sequence[Line], position: int) -> str:
    at_ms, count = place_of(lines, position)
    return f"{way}/{at_ms}/{count}"


def _position(token: str, lines: Sequence[Line]) -> int:
    match = _TOKEN.fullmatch(token)
    if match is None:
        raise _invalid("The specified nextToken is invalid.")
    return position_of((int(match[1]), int(match[2])), lines)


def _missing(message: str) -> Fault:
    return Fault(FaultBody("ResourceNotFoundException", 400, message))


def _invalid(message: str) -> Fault:
    return Fault(FaultBody("InvalidParameterException", 400, message))


@cache
def _model() -> botocore.model.ServiceModel:
    return botocore.model.ServiceModel(botocore.loaders.Loader().load_service_model(_SERVICE, "service-2"), _SERVICE)
