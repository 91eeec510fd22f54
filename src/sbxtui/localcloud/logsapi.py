"""CloudWatch Logs as far as sbx reads them: what sandboxes printed, on the API's own port.

Operations are found by `X-Amz-Target` and checked against botocore's model, like those of the sandboxes. Groups and
streams are named as on the platform; the events are the lines of the sandboxes' log files.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import botocore.loaders
import botocore.model

from sbxtui.localcloud import faults
from sbxtui.localcloud.faults import Fault, FaultBody
from sbxtui.localcloud.records import Record
from sbxtui.localcloud.shapes import check_input
from sbxtui.localcloud.sigv4 import HttpRequest

CONTENT_TYPE = "application/x-amz-json-1.1"
_TARGET = "x-amz-target"
_SERVICE = "logs"
_GROUP = "/aws/lambda-microvms/"
_STREAMS_PAGE = 50
_EVENTS_PAGE = 10_000
_STAMP = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z) ")
_TOKEN = re.compile(r"[fb]/(\d{1,15})/(\d{1,9})")


@dataclass(frozen=True, slots=True)
class Line:
    """One event: when, in milliseconds since the epoch, and what."""

    at_ms: int
    text: str


def is_for_logs(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether a request's headers name an operation of this service."""
    prefix = str(_model().metadata["targetPrefix"]).encode()
    return any(name.lower() == _TARGET.encode() and value.startswith(prefix + b".") for name, value in headers)


class LogsApi:
    """Answers requests whose signature was checked.

    Args:
        records: All sandboxes, those that ended too.
        folder_of: Where a sandbox's log files are.
    """

    def __init__(self, records: Callable[[], Sequence[Record]], folder_of: Callable[[str], Path]) -> None:
        self._records = records
        self._folder_of = folder_of

    async def answer(self, request: HttpRequest) -> dict[str, Any]:
        """The answer's document.

        Raises:
            Fault: What goes wrong, as the service says it.
        """
        operation, params = _decoded(request)
        match operation:
            case "DescribeLogStreams":
                return self._streams(params)
            case "GetLogEvents":
                return await self._events(params)
            case _:
                raise faults.unsupported(operation)

    def _streams(self, params: Mapping[str, Any]) -> dict[str, Any]:
        group = _group_of(params)
        prefix, after = params.get("logStreamNamePrefix", ""), params.get("nextToken", "")
        found = sorted((stream_name(record), record) for record in self._of_group(group))
        rows = [(name, record) for name, record in found if name.startswith(prefix) and name > after]
        page = rows[: params.get("limit", _STREAMS_PAGE)]
        more = {"nextToken": page[-1][0]} if len(page) < len(rows) else {}
        return {"logStreams": [_stream(name, record) for name, record in page], **more}

    async def _events(self, params: Mapping[str, Any]) -> dict[str, Any]:
        group, name = _group_of(params), params["logStreamName"]
        record = next((one for one in self._of_group(group) if stream_name(one) == name), None)
        if record is None:
            raise _missing("The specified log stream does not exist.")
        lines = await asyncio.to_thread(read_lines, self._folder_of(record.id), record.started_at)
        lines = [
            line for line in lines if params.get("startTime", 0) <= line.at_ms < params.get("endTime", float("inf"))
        ]
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

    def _of_group(self, group: str) -> list[Record]:
        found = [record for record in self._records() if _GROUP + record.image_name == group]
        if not found:
            raise _missing("The specified log group does not exist.")
        return found


def stream_name(record: Record) -> str:
    """A sandbox's stream, as the platform names it."""
    return f"{record.started_at.astimezone(UTC):%Y/%m/%d}[{record.image_version}]{record.id}"


def read_lines(folder: Path, started_at: datetime) -> list[Line]:
    """What a sandbox's programs printed, oldest first; a line without a time has that of the one before. Blocking."""
    at_ms = int(started_at.timestamp() * 1000)
    found: list[Line] = []
    for name in ("keeper.log.1", "keeper.log"):
        try:
            text = (folder / name).read_bytes().decode("utf-8", "replace")
        except OSError:
            continue
        for line in text.splitlines():
            if stamp := _STAMP.match(line):
                at_ms = max(at_ms, int(datetime.fromisoformat(stamp[1]).timestamp() * 1000))
            if line:
                found.append(Line(at_ms, line))
    return found


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
        raise _invalid(fault.body.message) from fault
    return operation, params


def _group_of(params: Mapping[str, Any]) -> str:
    group: str | None = params.get("logGroupName")
    if group is None:
        raise _invalid("Exactly one of logGroupName or logGroupIdentifier must be given; here: logGroupName.")
    return group


def _stream(name: str, record: Record) -> dict[str, Any]:
    created_ms = int(record.started_at.timestamp() * 1000)
    return {"logStreamName": name, "creationTime": created_ms, "firstEventTimestamp": created_ms, "storedBytes": 0}


def _token(way: str, lines: Sequence[Line], position: int) -> str:
    """Where a page ends: after so many events of the last one's instant. Files that turn over lose old lines only."""
    if not position:
        return f"{way}/0/0"
    at_ms = lines[position - 1].at_ms
    return f"{way}/{at_ms}/{sum(line.at_ms == at_ms for line in lines[:position])}"


def _position(token: str, lines: Sequence[Line]) -> int:
    match = _TOKEN.fullmatch(token)
    if match is None:
        raise _invalid("The specified nextToken is invalid.")
    at_ms, count = int(match[1]), int(match[2])
    earlier = sum(line.at_ms < at_ms for line in lines)
    return min(len(lines), earlier + min(count, sum(line.at_ms == at_ms for line in lines)))


def _missing(message: str) -> Fault:
    return Fault(FaultBody("ResourceNotFoundException", 400, message))


def _invalid(message: str) -> Fault:
    return Fault(FaultBody("InvalidParameterException", 400, message))


@cache
def _model() -> botocore.model.ServiceModel:
    return botocore.model.ServiceModel(botocore.loaders.Loader().load_service_model(_SERVICE, "service-2"), _SERVICE)
