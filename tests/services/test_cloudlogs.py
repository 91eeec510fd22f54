"""Logs that the platform keeps: real boto3 against moto, whose paging and errors are those of CloudWatch Logs."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import boto3
import pytest
from moto import mock_aws

from sbxtui.control.api import ControlApi
from sbxtui.core.errors import NotFound
from sbxtui.core.logs import LogLine, LogQuery, LogSource
from sbxtui.core.model import (
    Context,
    ContextKind,
    ContextName,
    LaunchRequest,
    Phase,
    Registration,
    SandboxId,
    SandboxRecord,
    SandboxState,
)
from sbxtui.services.cloudlogs import CloudLogs
from sbxtui.services.planes import ControlPlanes
from tests.control.planes import ARN, KEYS

WORK = Context(ContextName("work"), ContextKind.AWS, region="us-east-1")
NOW = datetime.now(UTC).replace(microsecond=0)
STREAM = f"{NOW:%Y/%m/%d}[3.0]microvm-1"
ROW = Registration(
    WORK.name, "app", SandboxId("microvm-1"), Phase.TRACKED, LaunchRequest(ARN), "token", "", NOW, "endpoint"
)


class _Plane(ControlApi):
    """Moto has no sandboxes: this one knows one of them, and all else is asked of moto."""

    role = "arn:aws:iam::123456789012:role/app"

    async def get(self, sandbox_id: str) -> SandboxRecord:
        return SandboxRecord(
            ROW.id, SandboxState.RUNNING, "endpoint", ARN, "3.0", NOW, 28_800, execution_role_arn=self.role
        )


class _Planes:
    def __init__(self) -> None:
        self.plane = _Plane(WORK, credentials=KEYS)

    async def open(self, context: Context) -> ControlApi:
        return self.plane


@pytest.fixture
def client() -> Iterator[Any]:
    with mock_aws():
        yield boto3.client(
            "logs", region_name="us-east-1", aws_access_key_id="AKIDTEST", aws_secret_access_key="secret"
        )


def put(client: Any, group: str, stream: str, *messages: str, start: int = 0) -> None:
    if not client.describe_log_groups(logGroupNamePrefix=group)["logGroups"]:
        client.create_log_group(logGroupName=group)
    if not client.describe_log_streams(logGroupName=group, logStreamNamePrefix=stream)["logStreams"]:
        client.create_log_stream(logGroupName=group, logStreamName=stream)
    at_ms = int(NOW.timestamp() * 1000) - 60_000 + start
    events = [{"timestamp": at_ms + number, "message": text} for number, text in enumerate(messages)]
    client.put_log_events(logGroupName=group, logStreamName=stream, logEvents=events)


async def lines(query: LogQuery, planes: _Planes | None = None) -> list[LogLine]:
    logs = CloudLogs(WORK, cast(ControlPlanes, planes or _Planes()))
    return [line async for line in logs.lines(ROW, query)]


async def test_a_stream_is_read_over_all_pages_and_no_other_one_with_it(client: Any) -> None:
    group = "/aws/lambda-microvms/sbx-base"
    put(client, group, f"{NOW:%Y/%m/%d}[3.0]microvm-2", "another one")
    for start in (0, 10_000):
        put(client, group, STREAM, *(f"line {number}" for number in range(start, start + 6_000)), start=start)
    query = LogQuery(LogSource.CLOUDWATCH)
    numbers = [*range(6_000), *range(10_000, 16_000)]
    assert [line.text for line in await lines(query)] == [f"line {number}" for number in numbers]
    last = await lines(LogQuery(LogSource.CLOUDWATCH, tail=2))
    assert [line.text for line in last] == ["line 15998", "line 15999"]
    chosen = await lines(LogQuery(LogSource.CLOUDWATCH, grep=re.compile("2222"), tail=1))
    assert [line.text for line in chosen] == ["line 12222"]
    assert await lines(LogQuery(LogSource.CLOUDWATCH, since=NOW + timedelta(hours=1))) == []


async def test_a_group_in_the_other_spelling_is_found_too(client: Any) -> None:
    put(client, "/aws/lambda/microvms/sbx-base", STREAM, "here")
    assert [line.text for line in await lines(LogQuery(LogSource.CLOUDWATCH))] == ["here"]


async def test_following_tells_what_comes_once_each_even_where_nothing_was_yet(client: Any) -> None:
    logs = CloudLogs(WORK, cast(ControlPlanes, _Planes()))
    query = LogQuery(LogSource.CLOUDWATCH, tail=1, is_following=True)
    async with asyncio.timeout(60), aclosing(logs.lines(ROW, query)) as followed:
        first = asyncio.ensure_future(anext(followed))
        await asyncio.to_thread(put, client, "/aws/lambda-microvms/sbx-base", STREAM, "one")
        assert (await first).text == "one"
        await asyncio.to_thread(put, client, "/aws/lambda-microvms/sbx-base", STREAM, "two", "three", start=10)
        assert [(await anext(followed)).text, (await anext(followed)).text] == ["two", "three"]


async def test_what_is_missing_is_said_by_name(client: Any) -> None:
    with pytest.raises(NotFound, match="there is no log group /aws/lambda-microvms/sbx-base"):
        await lines(LogQuery(LogSource.CLOUDWATCH))
    planes = _Planes()
    planes.plane.role = ""
    with pytest.raises(NotFound, match="launched without an execution role"):
        await lines(LogQuery(LogSource.CLOUDWATCH), planes)
    put(client, "/aws/lambda-microvms/sbx-base", f"{NOW:%Y/%m/%d}[3.0]microvm-2", "another one")
    with pytest.raises(NotFound, match="has no stream of it yet"):
        await lines(LogQuery(LogSource.CLOUDWATCH))
    with pytest.raises(NotFound, match="no log of a build"):
        await lines(LogQuery(LogSource.BUILD))
    put(client, "/aws/lambda-microvms/sbx-base", "build/3.0/GRAVITON", "Step 1/3: FROM scratch")
    (built,) = await lines(LogQuery(LogSource.BUILD))
    assert (built.source, built.text) == (LogSource.BUILD, "Step 1/3: FROM scratch")
